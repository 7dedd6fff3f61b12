"""How serving points are laid out in charts: load, workload (panels), and series (lines)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.core.outcome import Outcome
from benchx.reporting.frame import split_axes
from benchx.reporting.wording import plain_text
from benchx.scenario.serving_axes import RATE_AXES, WORKLOAD_AXES

if TYPE_CHECKING:
    import pandas as pd

_LOADS = (*RATE_AXES, "concurrency")
"""A rate comes first: where both are given, the concurrency is but a limit."""

PROMPT = "input_len"
"""Axis of the length of prompts."""

SERIES = "series"
"""Column that `with_series` adds."""


@dataclass(frozen=True, kw_only=True)
class ServingPanel:
    """Points of one workload, all series, all outcomes: only these may be compared."""

    title: str
    rows: pd.DataFrame


def load_axis(frame: pd.DataFrame) -> str | None:
    """The axis that says how hard the engine was pressed; None when none varies."""
    varying = split_axes(frame).varying
    return next((axis for axis in _LOADS if axis in varying), None)


def own_load(row: pd.Series) -> tuple[str, float] | None:
    """Axis and value of a point's load; closed and open loops may stand in one table."""
    for axis in _LOADS:
        given = row.get(axis)
        value = math.nan if given is None else float(given)
        if not math.isnan(value):
            return axis, value
    return None


def load_text(axis: str, value: float) -> str:
    """A load beside a point: `64`, `2.5/s`."""
    return f"{value:g}/s" if axis in RATE_AXES else f"{value:g}"


def with_series(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows and what tells their lines apart: the engine, and the settings that vary."""
    load = load_axis(frame)
    axes = [
        axis
        for axis in split_axes(frame).varying
        if axis != load and axis not in WORKLOAD_AXES and not _follows(frame, axis, load)
    ]
    names = [_words(row, [str(row["engine"])], axes) for _, row in frame.iterrows()]
    return frame.assign(**{SERIES: names})


def _follows(frame: pd.DataFrame, axis: str, load: str | None) -> bool:
    """Whether an axis moves with the load (a rate and the limit zipped to it)."""
    if load is None:
        return False
    return bool((frame.groupby(load)[axis].nunique() <= 1).all()) and axis in _LOADS


def serving_panels(frame: pd.DataFrame) -> tuple[ServingPanel, ...]:
    """One panel per workload, in the order of the plan; those without an ok point are left out."""
    return _panels(frame, {"requests"} if load_axis(frame) else set())


def load_panels(frame: pd.DataFrame, load: str) -> tuple[ServingPanel, ...]:
    """Those of `serving_panels` in which some series has two loads with a time to first token."""
    found = serving_panels(frame)
    return tuple(panel for panel in found if _is_line(panel.rows, load))


def prompt_panels(frame: pd.DataFrame) -> tuple[ServingPanel, ...]:
    """One per workload whose prompts have two lengths or more, each at its lowest load."""
    load = load_axis(frame)
    panels = []
    for panel in _panels(frame, {"requests", PROMPT}):
        rows = panel.rows
        if load is not None:
            rows = rows[rows[load].astype(float) == rows[load].astype(float).min()]
        if _is_line(rows, PROMPT):
            panels.append(ServingPanel(title=panel.title, rows=rows))
    return tuple(panels)


def _is_line(rows: pd.DataFrame, axis: str) -> bool:
    ok = measured(rows, f"{metric.TTFT.id}_p50")
    return axis in ok.columns and bool((ok.groupby(SERIES)[axis].nunique() > 1).any())


def _panels(frame: pd.DataFrame, without: set[str]) -> tuple[ServingPanel, ...]:
    axes = [
        axis for axis in split_axes(frame).varying if axis in WORKLOAD_AXES and axis not in without
    ]
    titles = [_words(row, [], axes) for _, row in frame.iterrows()]
    panels = []
    for title in dict.fromkeys(titles):
        rows = frame[[one == title for one in titles]]
        if (rows["outcome"] == Outcome.OK.value).any():
            panels.append(ServingPanel(title=title, rows=rows))
    return tuple(panels)


def _words(row: pd.Series, words: list[str], axes: list[str]) -> str:
    named = [f"{axis} {plain_text(row[axis])}" for axis in axes if row[axis] is not None]
    return ", ".join([*words, *named])


def measured(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The ok rows that have a figure above 0 in each of the columns."""
    ok = rows[rows["outcome"] == Outcome.OK.value]
    for column in columns:
        ok = ok[ok[column] > 0] if column in ok.columns else ok.iloc[:0]
    return ok


def front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both figures (larger is better), by falling y."""
    best, kept = -math.inf, []
    for x, y in sorted(set(points), key=lambda point: (-point[0], -point[1])):
        if y > best:
            kept.append((x, y))
            best = y
    return kept[::-1]
