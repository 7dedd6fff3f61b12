"""`benchx plan` prints every point, what will not run and why, and how long it may take."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchx.cli.words import vocabulary
from benchx.scenario import expand, load, shipped

Command = Callable[..., Any]

SCENARIO = """\
schema: 1
name: two-backends
title: Which is faster?
kind: kernel
op: kda_prefill
backends: [recurrent, chunked]
fixed: {head_dim: 32, value_dim: 32}
axes: {heads: [1, 2], seqlens: [16, "8+8"]}
measure: {launches: 3, max_time: 2s}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "two-backends.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return str(path)


def test_every_point_has_a_line_with_the_axes_that_vary(benchx: Command, scenario: str) -> None:
    lines = [line.split() for line in benchx("plan", scenario).out.splitlines()]
    assert ["heads", "seqlens", "backend", "plan", "timing", "s"] in lines
    rows = [tuple(line) for line in lines if line[-2:-1] == ["run"]]
    assert rows == [
        (heads, seqlens, backend, "run", "6")
        for heads in ("1", "2")
        for seqlens in ("16", "2x8")
        for backend in ("recurrent", "chunked")
    ]


def test_the_axes_that_do_not_vary_are_said_once(benchx: Command, scenario: str) -> None:
    assert benchx("plan", scenario).out.count("head_dim=32") == 1


def test_the_end_says_how_much_runs_how_long_and_that_the_price_is_unknown(
    benchx: Command, scenario: str
) -> None:
    last = benchx("plan", scenario).out.splitlines()[-1]
    assert last.startswith("8 points, 8 to run on ")
    assert "at most 48 s of timing" in last
    assert "cost unknown" in last


def test_a_known_price_gives_a_cost_per_gpu_with_tier_and_source(
    benchx: Command, scenario: str
) -> None:
    priced = ("--set", "cost.hardware=h200", "--set", "cost.prices=rental")
    last = benchx("plan", scenario, *priced).out.splitlines()[-1]
    assert re.search(r"at most 0\.\d\d USD per GPU in use \(\S+ USD an hour, rental 20\d\d", last)
    assert "cost unknown" not in last


def test_json_gives_the_cost_that_the_text_gives(benchx: Command, scenario: str) -> None:
    priced = ("--set", "cost.hardware=h200", "--set", "cost.prices=rental")
    plan = json.loads(benchx("plan", scenario, *priced, "--json").out)
    cost = plan["most_cost"]
    assert plan["cost_unknown"] is None
    assert cost["per_gpu"] == pytest.approx(48 / 3600 * cost["price_per_gpu_hour"])
    last = benchx("plan", scenario, *priced).out.splitlines()[-1]
    assert f"at most {cost['per_gpu']:.2f} {cost['currency']} per GPU in use" in last
    assert f"{cost['tier']} {cost['date']}, {cost['source']})" in last


def test_a_cost_below_a_cent_is_not_rounded_to_nothing(benchx: Command, scenario: str) -> None:
    settings = ("cost.hardware=h200", "cost.prices=rental", "measure.max_time=10ms")
    last = benchx("plan", scenario, *(w for s in settings for w in ("--set", s))).out.splitlines()[
        -1
    ]
    assert "; less than 0.01 USD per GPU in use (" in last


def test_a_value_replaced_by_set_shows_in_the_plan(benchx: Command, scenario: str) -> None:
    result = benchx("plan", scenario, "--set", "axes.heads=[4]", "--json")
    points = json.loads(result.out)["points"]
    assert {point["params"]["heads"] for point in points} == {4}


def test_json_holds_every_point_and_no_invented_price(benchx: Command, scenario: str) -> None:
    plan = json.loads(benchx("plan", scenario, "--json").out)
    loaded = expand(load(scenario), vocabulary())
    assert [point["point_id"] for point in plan["points"]] == [p.point_id for p in loaded]
    assert plan["most_cost"] is None
    assert "no price" in plan["cost_unknown"]
    assert plan["most_minutes"] == pytest.approx(8 * 3 * 2 / 60)


def test_the_same_reason_is_written_out_once_under_a_number(benchx: Command) -> None:
    result = benchx("plan", "kda-prefill", "--json")
    plan = json.loads(result.out)
    refused = [point for point in plan["points"] if point["outcome"]]
    text = benchx("plan", "kda-prefill").out
    for point in refused:
        assert point["reason"]
        assert text.count(point["reason"]) >= 1
    notes = [line for line in text.splitlines() if line.startswith("[")]
    assert len(notes) == len({(point["reason"], point["install"]) for point in refused})


@pytest.mark.parametrize("name", list(shipped()))
def test_every_shipped_scenario_can_be_planned_on_this_machine(benchx: Command, name: str) -> None:
    result = benchx("plan", name)
    assert (result.code, result.err) == (0, "")


def test_a_dry_run_is_the_plan(benchx: Command, scenario: str) -> None:
    assert benchx("run", scenario, "--dry-run") == benchx("plan", scenario)


def test_a_mistake_in_the_scenario_names_file_and_line(benchx: Command, scenario: str) -> None:
    Path(scenario).write_text(SCENARIO.replace("chunked", "chunkd"), encoding="utf-8")
    result = benchx("plan", scenario)
    assert result.code == 2
    assert result.err.startswith(f"error: {scenario}:6: backends")
    assert "'chunked'" in result.err


def test_a_scenario_without_a_title_is_named_once(benchx: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("schema: 1\nextends: smoke\n", encoding="utf-8")
    assert benchx("plan", str(path)).out.splitlines()[0] == "mine"


def test_values_are_shown_as_a_scenario_would_have_them(benchx: Command) -> None:
    plan = benchx("plan", "serving-multi-turn").out
    assert "False" not in plan
    rows = [line.split() for line in plan.splitlines()]
    assert [row[:2] for row in rows if row[:1] == ["4"] and row[2:3] == ["vllm"]] == [
        ["4", "false"],
        ["4", "true"],
    ]
    assert "folder='' " in benchx("plan", "kv-tiers").out


def test_the_time_of_a_short_plan_is_not_rounded_away(benchx: Command) -> None:
    last = benchx("plan", "smoke").out.splitlines()[-1]
    assert "8 points, 8 to run on" in last
    assert "at most 800 ms of timing" in last


def test_what_serves_is_called_an_engine(benchx: Command) -> None:
    headings = [line.split() for line in benchx("plan", "serving-quickstart").out.splitlines()]
    assert ["concurrency", "engine", "plan", "timing", "s"] in headings
