"""`benchx list` names every word that a scenario may use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from benchx.cli.list import Kind
from benchx.core.metric import METRICS
from benchx.ops.vocabulary import kernel_words
from benchx.scenario import shipped

Command = Callable[..., Any]


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_listed_for_people_and_for_scripts(benchx: Command, kind: Kind) -> None:
    text, data = benchx("list", kind), benchx("list", kind, "--json")
    assert (text.code, data.code) == (0, 0)
    assert (text.err, data.err) == ("", "")
    entries = json.loads(data.out)
    assert entries
    assert text.out.strip()


def test_each_engine_says_whether_it_is_here_or_how_to_get_it(benchx: Command) -> None:
    engines = {one["engine"]: one for one in json.loads(benchx("list", "engines", "--json").out)}
    assert engines["endpoint"]["here"]
    for name, engine in engines.items():
        assert engine["here"] or engine["install"], name


def test_hardware_is_listed_with_its_prices_their_currency_and_date(benchx: Command) -> None:
    listed = json.loads(benchx("list", "hardware", "--json").out)
    hardware = {one["hardware"]: one for one in listed}
    rental = {"tier": "rental", "per_gpu_hour": 2.9, "currency": "USD", "date": "2026-07"}
    assert rental in hardware["h200"]["prices"]
    assert hardware["tpu-v7"]["prices"] == []


def test_every_shipped_scenario_is_listed_with_its_question_and_its_points(
    benchx: Command,
) -> None:
    entries = json.loads(benchx("list", "scenarios", "--json").out)
    assert [entry["scenario"] for entry in entries] == list(shipped())
    for entry in entries:
        assert entry["points"] > 0
        assert entry["question"].endswith("?"), entry["scenario"]


def test_every_axis_of_every_op_is_explained(benchx: Command) -> None:
    entries = json.loads(benchx("list", "ops", "--json").out)
    words = kernel_words()
    assert [entry["name"] for entry in entries] == list(words)
    for entry in entries:
        assert [axis["name"] for axis in entry["axes"]] == list(words[entry["name"]].axes)
        assert all(axis["meaning"] for axis in entry["axes"])


def test_an_axis_that_a_scenario_must_name_is_marked(benchx: Command) -> None:
    heads = next(line for line in benchx("list", "ops").out.splitlines() if " heads " in line)
    assert "(required)" in heads


def test_each_backend_names_the_operators_it_has(benchx: Command) -> None:
    entries = json.loads(benchx("list", "backends", "--json").out)
    listed = {(entry["backend"], op) for entry in entries for op in entry["ops"]}
    words = kernel_words()
    assert listed == {(backend, op) for op in words for backend in words[op].backends}


def test_every_metric_is_listed_with_unit_and_formula(benchx: Command) -> None:
    entries = json.loads(benchx("list", "metrics", "--json").out)
    assert [entry["metric"] for entry in entries] == list(METRICS.names())
    assert all(entry["unit"] and entry["formula"] for entry in entries)
    roles = {entry["metric"]: (entry["role"], entry["derived_from"]) for entry in entries}
    assert roles["device_time_ms"] == ("primary", [])
    assert roles["roofline_share"] == ("derived", ["device_time_ms"])
    assert " diagnostic " in benchx("list", "metrics").out


def test_the_hardware_table_has_a_row_for_each_price_and_units_in_its_headings(
    benchx: Command,
) -> None:
    heading, *rows = benchx("list", "hardware").out.splitlines()
    for word in ("BF16 TFLOP/s", "memory GB", "TB/s"):
        assert word in heading
    first = next(row for row in rows if row.startswith("h200 "))
    assert first.split()[-4:] == ["rental", "2.9", "USD/h", "2026-07"]
    assert next(row for row in rows if row.startswith("tpu-v7 ")).endswith("none known")


def test_tables_say_truth_values_as_scenarios_and_doctor_do(benchx: Command) -> None:
    ops = benchx("list", "ops").out
    assert " true " in ops
    assert "True" not in ops
    endpoint = benchx("list", "engines").out.splitlines()[-1]
    assert endpoint.split()[-1] == "yes"
