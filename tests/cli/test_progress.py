"""Progress is one line per record in a log and one moving line on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchx.cli.labels import Labels
from benchx.cli.progress import Bar, left_text, make_progress, opening
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.runner import Advance, PlanSize

POINTS = [
    Point(kind="kernel", subject="kda", backend=backend, params={"heads": heads, "dtype": "bf16"})
    for heads in (8, 64)
    for backend in ("a", "b")
]
SIZE = PlanSize(points=4, launches=2, records=8, kept=0)


def _record(point: Point, outcome: Outcome = Outcome.OK, reason: str | None = None) -> LaunchRecord:
    values = {"device_time_ms": 1.23456} if outcome is Outcome.OK else {}
    return LaunchRecord(
        run_id="r", point_id=point.point_id, launch=1, outcome=outcome, reason=reason,
        started_at="", ended_at="", values=values,
    )  # fmt: skip


def _console(*, is_terminal: bool, width: int = 80) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=is_terminal, width=width, color_system=None,
        markup=False, highlight=False,
    )  # fmt: skip


def _told(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_label_names_only_the_axes_that_vary() -> None:
    assert Labels(POINTS).of(POINTS[2]) == "kda/a heads=64"


def test_an_axis_that_varies_in_another_part_only_is_not_named() -> None:
    other = Point(kind="kernel", subject="kda", backend="a", params={"heads": 9}, part=1)
    assert Labels([*POINTS, other]).of(other) == "kda/a"


def test_a_log_has_one_line_per_record_with_its_result_and_the_time_left() -> None:
    console = _console(is_terminal=False)
    with make_progress(console, Labels(POINTS)) as progress:
        progress.started(Path("results/x"), SIZE)
        progress.phase(1, "timing", POINTS[:1])
        progress.finished(POINTS[0], _record(POINTS[0]), Advance(3, 8, 200.0))
        wrong = _record(POINTS[1], Outcome.WRONG, "o: rms ratio 0.2 above 0.006")
        progress.finished(POINTS[1], wrong, Advance(4, 8, None))
        progress.note("launch 1: new worker")
    assert _told(console).splitlines() == [
        "4 points in 2 launches -> results/x",
        "[3/8] launch 1: kda/a heads=8: ok, 1.235 ms, 3 min left",
        "[4/8] launch 1: kda/b heads=8: wrong: o: rms ratio 0.2 above 0.006",
        "launch 1: new worker",
    ]


def test_one_is_not_counted_in_the_plural() -> None:
    size = PlanSize(points=1, launches=1, records=1, kept=0)
    assert opening(Path("results/x"), size) == "1 point in 1 launch -> results/x"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_bar_stays_within_the_terminal_and_failures_remain_above_it(width: int) -> None:
    console = _console(is_terminal=True, width=width)
    with make_progress(console, Labels(POINTS)) as progress:
        assert isinstance(progress, Bar)
        progress.started(Path("results/x"), SIZE)
        for launch in (0, 1):
            progress.phase(launch, "timing", POINTS[:1])
            crashed = _record(POINTS[0], Outcome.CRASHED, "signal 11")
            progress.finished(POINTS[0], crashed, Advance(launch + 1, 8, 30.0))
        progress.finished(POINTS[1], _record(POINTS[1]), Advance(3, 8, 30.0))
    told = _told(console)
    assert told.count("kda/a heads=8: crashed: signal 11") == 1
    moving = [line for line in told.replace("\r", "\n").splitlines() if "━" in line]
    assert moving
    assert max(len(line.split("\x1b")[0]) for line in moving) <= width


@pytest.mark.parametrize(
    ("left_s", "text"),
    [(None, ""), (0.2, ""), (42.0, ", 42 s left"), (200.0, ", 3 min left")],
)
def test_the_time_left_is_rounded_to_what_it_is_worth(left_s: float | None, text: str) -> None:
    assert left_text(left_s) == text
