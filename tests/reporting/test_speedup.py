"""Speed-ups compare equal inputs only, and say over how many."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchx.reporting.console import mean_lines
from benchx.reporting.document import Section
from benchx.reporting.frame import load_frame
from benchx.reporting.speedup import choose_baseline, mean_speed_ups, speed_ups

RowMaker = Callable[..., list[dict[str, Any]]]
HEADS = [{"heads": 8}, {"heads": 16}, {"heads": 32}]
times = st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=3, max_size=3)
with_fixture = settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def frame_of(make_rows: RowMaker, entries: dict[str, list[float | str]]) -> pd.DataFrame:
    rows = make_rows("kda_decode", HEADS, entries, run_id="r")
    return load_frame([SimpleNamespace(rows=rows)])


def mean_of(frame: pd.DataFrame, baseline: str) -> float:
    found = speed_ups(frame, baseline)
    return mean_speed_ups(frame, found, baseline=baseline)[0].ratio


def test_half_the_time_is_a_speed_up_of_two(make_rows: RowMaker) -> None:
    frame = frame_of(make_rows, {"a": [2.0, 4.0, 8.0], "b": [1.0, 2.0, 4.0]})
    assert [one.ratio for one in speed_ups(frame, "a")] == [2.0, 2.0, 2.0]


@with_fixture
@given(first=times, second=times)
def test_turning_the_comparison_round_inverts_the_mean(
    make_rows: RowMaker, first: list[float | str], second: list[float | str]
) -> None:
    frame = frame_of(make_rows, {"a": first, "b": second})
    assert math.isclose(mean_of(frame, "a") * mean_of(frame, "b"), 1.0, rel_tol=1e-9)


@with_fixture
@given(first=times, second=times, factor=st.floats(min_value=0.01, max_value=100))
def test_a_slower_clock_changes_no_speed_up(
    make_rows: RowMaker, first: list[float], second: list[float], factor: float
) -> None:
    plain = frame_of(make_rows, {"a": [*first], "b": [*second]})
    slowed = frame_of(
        make_rows, {"a": [t * factor for t in first], "b": [t * factor for t in second]}
    )
    assert math.isclose(mean_of(plain, "a"), mean_of(slowed, "a"), rel_tol=1e-9)


@with_fixture
@given(first=times, second=times)
def test_the_interval_holds_the_ratio(
    make_rows: RowMaker, first: list[float | str], second: list[float | str]
) -> None:
    for one in speed_ups(frame_of(make_rows, {"a": first, "b": second}), "a"):
        assert one.low is not None
        assert one.high is not None
        assert one.low <= one.ratio <= one.high


def test_the_mean_counts_only_inputs_where_both_are_ok(make_rows: RowMaker) -> None:
    frame = frame_of(
        make_rows, {"a": [2.0, "oom: memory", 8.0], "b": [1.0, 2.0, "wrong: ratio 0.1"]}
    )
    mean = mean_speed_ups(frame, speed_ups(frame, "a"), baseline="a")[0]
    assert (mean.ratio, mean.groups, mean.groups_in_all) == (pytest.approx(2.0), 1, 3)


def test_without_intervals_the_speed_up_has_none(make_rows: RowMaker) -> None:
    frame = frame_of(make_rows, {"a": [2.0, 4.0, 8.0], "b": [1.0, 2.0, 4.0]})
    frame["device_time_ms_ci_low"] = math.nan
    assert {(one.low, one.high) for one in speed_ups(frame, "a")} == {(None, None)}


def test_a_point_that_fails_does_not_change_the_baseline(make_rows: RowMaker) -> None:
    frame = frame_of(make_rows, {"a": [1.0, "oom: memory", 1.0], "b": [1.0, 2.0, 3.0]})
    assert choose_baseline(frame) == "a"


def test_the_baseline_is_the_first_listed_backend_that_is_ok_anywhere(make_rows: RowMaker) -> None:
    entries: dict[str, list[float | str]] = {
        "c": ["skipped: not installed"] * 3,
        "b": ["oom: memory", "oom: memory", 3.0],
        "a": [1.0, 2.0, 3.0],
    }
    assert choose_baseline(frame_of(make_rows, entries)) == "b"


def test_all_means_run_over_the_inputs_that_every_backend_finished(make_rows: RowMaker) -> None:
    entries: dict[str, list[float | str]] = {
        "a": [8.0, 8.0, 8.0],
        "b": [4.0, 2.0, 1.0],
        "c": ["oom: memory", 4.0, 4.0],
    }
    frame = frame_of(make_rows, entries)
    means = mean_speed_ups(frame, speed_ups(frame, "a"), baseline="a")
    assert [(one.backend, one.groups, one.groups_in_all) for one in means] == [
        ("b", 2, 3),
        ("c", 2, 3),
    ]
    assert [one.ratio for one in means] == [pytest.approx(math.sqrt(32)), pytest.approx(2.0)]


def test_a_backend_that_was_asked_for_at_few_inputs_does_not_narrow_the_others_mean(
    make_rows: RowMaker,
) -> None:
    times: dict[str, list[float | str]] = {
        "a": [8.0, 8.0, 8.0],
        "b": [4.0, 2.0, 1.0],
        "c": [4.0, 4.0, 4.0],
    }
    rows = make_rows("kda_decode", HEADS, times, run_id="r")
    asked = [row for row in rows if row["backend"] != "c" or row["heads"] == 8]
    frame = load_frame([SimpleNamespace(rows=asked)])
    means = mean_speed_ups(frame, speed_ups(frame, "a"), baseline="a")
    assert [(one.backend, one.groups) for one in means] == [("b", 3), ("c", 1)]


def test_backends_without_a_common_input_have_no_mean_and_the_report_says_so(
    make_rows: RowMaker, section_of: Callable[..., Section]
) -> None:
    entries: dict[str, list[float | str]] = {
        "a": [8.0, 8.0, 8.0],
        "b": [4.0, "oom: memory", "oom: memory"],
        "c": ["oom: memory", 4.0, 4.0],
    }
    section = section_of(make_rows("kda_decode", HEADS, entries, run_id="synthetic-1"))
    assert (section.means, section.speed_ups) == ((), ())
    assert mean_lines(section) == ["no speed-up over a: b, c finished no common input"]


def test_without_an_ok_row_there_is_no_baseline(make_rows: RowMaker) -> None:
    frame = frame_of(make_rows, {"a": ["oom: memory"] * 3})
    assert choose_baseline(frame) is None
