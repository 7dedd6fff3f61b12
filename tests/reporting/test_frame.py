"""The frame keeps plan order and knows axes from figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from benchx.core.metric import METRICS
from benchx.core.outcome import Outcome
from benchx.reporting import frame as frames

RowMaker = Callable[..., list[dict[str, Any]]]
HEADS = [{"heads": 8}, {"heads": 16}]


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return frames.load_frame([SimpleNamespace(rows=rows)])


def test_rows_stay_in_plan_order(make_rows: RowMaker) -> None:
    rows = make_rows("kda_decode", HEADS, {"b": [1.0, 2.0], "a": [3.0, 4.0]}, run_id="r")
    frame = frame_of(rows)
    assert list(frame["point_id"]) == [row["point_id"] for row in rows]
    assert frames.backend_order(frame) == ("b", "a")


def test_a_run_without_points_gives_an_empty_frame_with_its_columns() -> None:
    frame = frame_of([])
    assert frame.empty
    assert {"outcome", "backend", "device_time_ms_p50"} <= set(frame.columns)


def test_a_frame_with_many_figures_takes_another_column_without_a_warning(
    make_rows: RowMaker,
) -> None:
    (row,) = make_rows("kda_decode", HEADS[:1], {"a": [1.0]}, run_id="r")
    many = {f"{metric.id}_{end}": 1.0 for metric in METRICS for end in ("p50", "p95", "mean")}
    frame = frame_of([row | many])
    assert len(frame.columns) > 120
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame.assign(one_more="x")


def test_axes_are_what_is_neither_identity_nor_figure(make_rows: RowMaker) -> None:
    rows = make_rows("kda_decode", HEADS, {"a": [1.0, 2.0]}, run_id="r", fixed={"gate": "log"})
    split = frames.split_axes(frame_of(rows))
    assert split.varying == ("heads",)
    assert dict(split.fixed) == {"gate": "log"}


def test_whole_numbers_on_axes_stay_whole_when_another_operator_lacks_the_axis(
    make_rows: RowMaker,
) -> None:
    rows = make_rows("kda_decode", [{"batch": 8}], {"a": [1.0]}, run_id="r")
    rows += make_rows("kda_prefill", [{"seqlens": "64"}], {"a": [1.0]}, run_id="r")
    frame = frame_of(rows)
    assert frame["batch"].iloc[0] == 8
    assert isinstance(frame["batch"].iloc[0], int)
    assert frame["batch"].iloc[1] is None


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.OK])
def test_only_ok_rows_are_measured_rows(make_rows: RowMaker, outcome: Outcome) -> None:
    rows = make_rows("kda_decode", HEADS, {"a": [1.0, f"{outcome.value}: why"]}, run_id="r")
    rows[1]["device_time_ms_p50"] = 0.5  # a figure that must not count
    assert len(frames.ok_rows(frame_of(rows))) == 1


def test_the_fastest_backend_of_equal_inputs_is_found(make_rows: RowMaker) -> None:
    rows = make_rows("kda_decode", HEADS, {"a": [1.0, 3.0], "b": [2.0, 2.0]}, run_id="r")
    frame = frame_of(rows)
    assert list(frame.loc[sorted(frames.fastest(frame)), "backend"]) == ["a", "b"]


def test_backends_whose_intervals_overlap_share_the_first_place(make_rows: RowMaker) -> None:
    times = {"a": [1.0], "b": [1.001], "c": [1.1]}
    frame = frame_of(make_rows("kda_decode", HEADS[:1], times, run_id="r"))
    assert list(frame.loc[sorted(frames.fastest(frame)), "backend"]) == ["a", "b"]


def test_a_backend_without_rivals_is_not_the_fastest(make_rows: RowMaker) -> None:
    rows = make_rows("kda_decode", HEADS[:1], {"a": [1.0], "b": ["oom: memory"]}, run_id="r")
    assert not frames.fastest(frame_of(rows))


def test_notes_of_several_launches_are_taken_apart() -> None:
    assert frames.words_of(("host_bound", "a+b")) == ("host_bound", "a+b")
    assert frames.words_of(None) == ()
