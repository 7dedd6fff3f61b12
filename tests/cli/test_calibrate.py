"""`benchx calibrate --timer` fails when the timer is off."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from benchx.measure import calibrate
from benchx.measure.calibrate import TimerCheck

Command = Callable[..., Any]


def _check(deviation: float | None) -> TimerCheck:
    theirs_ms = None if deviation is None else 1.0
    return TimerCheck(
        name="copy", ours_ms=1.0 + (deviation or 0.0), theirs_ms=theirs_ms, other="timeit",
        deviation=deviation, reason="not installed" if deviation is None else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("deviation", "code", "verdict"),
    [
        (0.0, 0, "ok"),
        (0.0199, 0, "ok"),
        (-0.021, 4, "OFF"),
        (0.5, 4, "OFF"),
        (None, 0, "not compared: not installed"),
    ],
)
def test_more_than_two_percent_off_is_a_failure(
    benchx: Command, monkeypatch: pytest.MonkeyPatch,
    deviation: float | None, code: int, verdict: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(calibrate, "calibrate_timer", lambda device: [_check(deviation)])
    result = benchx("calibrate", "--timer")
    assert result.code == code
    assert result.out.splitlines()[1].endswith(verdict)
    assert "the median over the turns" in result.out.splitlines()[-1]
    assert ("off by more than 2%" in result.err) == (code == 4)


def test_json_says_which_comparison_passed(
    benchx: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [_check(0.001), _check(None)]
    monkeypatch.setattr(calibrate, "calibrate_timer", lambda device: checks)
    entries = json.loads(benchx("calibrate", "--timer", "--json").out)
    assert [entry["passed"] for entry in entries] == [True, None]
    assert [entry["work_passed"] for entry in entries] == [True, True]


@pytest.mark.parametrize(
    ("deviations", "code", "told"),
    [
        ((0.006, 0.09), 0, ["ok", "off, but the others differ by 8%"]),
        ((0.03, 0.09), 4, ["OFF, but the others differ by 6%"] * 2),
        ((0.03, 0.035), 4, ["OFF"] * 2),
        ((0.021, 0.019), 0, ["off", "ok"]),
        ((0.09, None), 4, ["OFF", "not compared: not installed"]),
    ],
)
def test_one_timer_that_agrees_is_enough_and_a_dispute_among_the_others_is_told(
    benchx: Command, monkeypatch: pytest.MonkeyPatch,
    deviations: tuple[float | None, ...], code: int, told: list[str],
) -> None:  # fmt: skip
    checks = [_check(deviation) for deviation in deviations]
    monkeypatch.setattr(calibrate, "calibrate_timer", lambda device: checks)
    result = benchx("calibrate", "--timer")
    assert result.code == code
    rows = result.out.splitlines()[1:-1]
    assert [row.endswith(f" {words}") for row, words in zip(rows, told, strict=True)] == [True] * 2
