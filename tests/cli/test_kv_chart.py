"""`benchx kv --chart`: where it is drawn, what it says of its sources, what prevents it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchx import __version__
from benchx.cli.app import BROKEN_PIPE
from benchx.reporting.header import header_of
from benchx.store import read_run

KIMI = "kimi-linear-48b-a3b"
RESULTS = Path(__file__).parents[2] / "results"
PREFILL, TIERS = RESULTS / "h200-kv-throughput", RESULTS / "h200-kv-tiers"
VERSUS = RESULTS / "h200-hybrid-vs-full"
"""Runs that are part of the repository."""

Command = Callable[..., Any]
Unread = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--run", PREFILL, "--tiers", TIERS), (PREFILL, TIERS)),
        (("--hardware", "h200", "--tiers", TIERS), (TIERS,)),
        (("--versus", VERSUS), (VERSUS,)),
    ],
)
def test_a_chart_says_which_runs_on_which_device_are_behind_it(
    benchx: Command, tmp_path: Path, arguments: tuple[Any, ...], told: tuple[Path, ...]
) -> None:
    path = tmp_path / "kv.svg"
    found = benchx("kv", KIMI, *map(str, arguments), "--chart", str(path))
    assert found.code == 0, found.err
    said = " ".join(path.read_text(encoding="utf-8").split())
    for run in told:
        header = header_of(read_run(run))
        for word in (header.run_id, header.device, header.versions["torch"], header.date):
            assert word in said
    assert "no measurement" not in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--run", PREFILL), ("Not the whole model: 4 of 27 layers",)),
        (("--versus", VERSUS), ("Not the whole model: 4 of 27 layers", "One launch, so no inter")),
    ],
)
def test_a_chart_of_a_slice_names_it_and_one_of_a_single_launch_says_so(
    benchx: Command, tmp_path: Path, arguments: tuple[Any, ...], told: tuple[str, ...]
) -> None:
    path = tmp_path / "kv.svg"
    assert benchx("kv", KIMI, *map(str, arguments), "--chart", str(path)).code == 0
    said = " ".join(path.read_text(encoding="utf-8").split())
    for words in told:
        assert words in said


def test_a_chart_without_a_run_says_that_nothing_was_measured_and_is_the_same_twice(
    benchx: Command, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    for path in (first, second):
        assert benchx("kv", KIMI, "--hardware", "h200", "--chart", str(path)).code == 0
    assert f"no measurement: catalogue of benchx {__version__}" in first.read_text("utf-8")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("more", [("--hardware", "h200"), ("--versus", str(VERSUS))])
def test_json_stays_json_beside_a_chart(
    benchx: Command, tmp_path: Path, more: tuple[str, ...]
) -> None:
    path = tmp_path / "kv.png"
    found = benchx("kv", KIMI, *more, "--chart", str(path), "--json")
    assert json.loads(found.out)["chart"] == str(path)


@pytest.mark.parametrize("more", [("--hardware", "h200"), ("--versus", str(VERSUS))])
def test_a_chart_is_drawn_though_the_reader_of_the_tables_has_gone(
    unread: Unread, tmp_path: Path, more: tuple[str, ...]
) -> None:
    path = tmp_path / "kv.png"
    code, complaints = unread("kv", KIMI, *more, "--chart", str(path))
    assert (code, complaints) == (BROKEN_PIPE, "")
    assert path.stat().st_size > 5_000


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_chart_is_written_where_asked(benchx: Command, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"kv.{ending}"
    found = benchx("kv", KIMI, "--hardware", "h200", "--chart", str(path))
    assert found.code == 0, found.err
    assert path.stat().st_size > 5_000
    assert str(path) in found.out
