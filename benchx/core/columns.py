"""Names of the columns that every row of a result has; an axis can't have one of them."""

from __future__ import annotations

from benchx.core.metric import parse_column

IDENTITY = (
    "run_id", "scenario", "point_id", "group_id", "kind", "op", "backend", "engine",
    "outcome", "reason", "launches", "samples",
)  # fmt: skip
"""Columns that say which point a row is and what became of it."""

RECORDED = (
    "check_method", "timer", "cache", "stop", "notes", "device_name", "device_count", "arch",
    "version", "control_drift",
)  # fmt: skip
"""Columns that say how a row was measured."""

KV_SOURCE = "kv_prefill_source"
"""Where the prefill time of a serving row is from; other rows lack it."""

LISTS = ("check_method", "timer", "cache", "stop", "notes", "version", KV_SOURCE)
"""Columns that hold a list of words: more than one where launches differ."""


def is_figure(column: str) -> bool:
    """Whether a column holds a registered metric or one of its statistics."""
    return column == "control_drift" or parse_column(column) is not None


def axis_problem(name: str) -> str | None:
    """Why an axis can't have this name, or None: its values would replace those of a column."""
    if name in (*IDENTITY, *RECORDED, KV_SOURCE):
        return f"an axis can't be named {name!r}: every row has a column of that name"
    if is_figure(name):
        return f"an axis can't be named {name!r}: that is the column of a metric"
    return None
