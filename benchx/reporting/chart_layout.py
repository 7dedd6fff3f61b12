"""How an operator's points are laid out in a chart: which axis is x, which make panels or rows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchx.core.axes import parse_lengths
from benchx.reporting.frame import ok_rows, split_axes
from benchx.reporting.wording import (
    category_text,
    distinct_texts,
    plain_text,
    tokens_text,
    value_text,
)

if TYPE_CHECKING:
    import pandas as pd

_X_AXES = ("seqlens", "context", "batch", "prefix", "tokens")
_SHAPE_AXES = ("heads", *_X_AXES)
_LINES_SHARE = 2 / 3
"""Of the rows: with fewer of them in lines, a picture of lines would leave out too much."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One small multiple: its title and the rows (all backends, all outcomes) it shows."""

    title: str
    rows: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over a numeric axis, one panel per combination of the other varying axes.

    Attributes:
        x: The axis.
        panels: Each with two positions or more.
        apart: Labels of the rows that no panel holds: alone at their combination.
        note: Values of the settings that change along x and so make no panels; empty without any.
    """

    x: str
    panels: tuple[Panel, ...]
    apart: tuple[Hashable, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Category:
    """One row of a dot plot: equal inputs, all backends; `section` changes with the first axis."""

    label: str
    section: str
    rows: pd.DataFrame


def x_value(axis: str, value: object) -> float | None:
    """Position on a numeric axis; None for a batch of several sequences or a word."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if axis != "seqlens" or not isinstance(value, str):
        return None
    lengths = parse_lengths(value)
    return float(lengths[0]) if len(lengths) == 1 else None


def lines_of(frame: pd.DataFrame) -> Lines | None:
    """Lines over the first axis that gives every panel two or more points; None if none does.

    Where no axis does, over one that gives most of the rows a panel: the others are told apart.
    """
    varying = split_axes(frame).varying
    plans = [_lines_over(frame, axis, varying) for axis in _X_AXES if axis in varying]
    found = [_without_lone_points(plan, frame) for plan in plans if plan]
    usable = [plan for plan in found if len(plan.apart) <= (1 - _LINES_SHARE) * len(frame)]
    return min(usable, key=lambda plan: (bool(plan.apart), len(plan.panels)), default=None)


def apart_of(frame: pd.DataFrame, plan: Lines) -> pd.DataFrame:
    """The rows that no panel of the plan holds, and those at the same x to compare them with."""
    places = set(frame.loc[list(plan.apart), plan.x])
    return frame[frame[plan.x].isin(places)]


def common_text(frame: pd.DataFrame, rows: pd.DataFrame) -> str:
    """`seqlens 4096, chunk 8192`: what varies over the frame and is equal in all these rows."""
    fixed = split_axes(rows).fixed
    axes = [axis for axis in split_axes(frame).varying if axis in fixed]
    return ", ".join(f"{axis} {value_text(fixed[axis])}" for axis in axes)


def _without_lone_points(plan: Lines, frame: pd.DataFrame) -> Lines:
    panels = tuple(panel for panel in plan.panels if _reach(plan.x, panel) > 1)
    held = {label for panel in panels for label in panel.rows.index}
    apart = tuple(label for label in frame.index if label not in held)
    return replace(plan, panels=panels, apart=apart)


def scaling_of(frame: pd.DataFrame) -> Lines | None:
    """Lines over the length of single sequences, panels with one length left out; None if empty."""
    single = frame[[x_value("seqlens", value) is not None for value in frame.get("seqlens", [])]]
    if single.empty or len(single) == len(frame):
        return None
    return lines_over_length(single)


def lines_over_length(frame: pd.DataFrame) -> Lines | None:
    """Lines over the length of single sequences; None without two lengths that differ in no more.

    Batches of several sequences, and what is alone at its combination, are left out.
    """
    if "seqlens" not in frame.columns:
        return None
    single = frame[[x_value("seqlens", value) is not None for value in frame["seqlens"]]]
    if single.empty:
        return None
    plan = _lines_over(single, "seqlens", split_axes(single).varying)
    found = _without_lone_points(plan, single) if plan else None
    return found if found and found.panels else None


def _lines_over(frame: pd.DataFrame, axis: str, varying: tuple[str, ...]) -> Lines | None:
    if any(x_value(axis, value) in (None, 0.0) for value in frame[axis]):
        return None
    along = [name for name in varying if _moves_along(frame, name, axis)]
    others = [name for name in varying if name != axis and name not in along]
    note = " ".join(_along_text(frame, name, axis) for name in along)
    if not others:
        return Lines(x=axis, panels=(Panel(title="", rows=frame),), note=note)
    texts = _texts(frame, tuple(others))
    groups: dict[str, list[Any]] = {}
    for label, row in frame.iterrows():
        values = {name: row[name] for name in others}
        groups.setdefault(_panel_title(values, texts), []).append(label)
    panels = (Panel(title=title, rows=frame.loc[labels]) for title, labels in groups.items())
    return Lines(x=axis, panels=tuple(panels), note=note)


def _moves_along(frame: pd.DataFrame, name: str, axis: str) -> bool:
    """Whether a setting, neither shape nor word, is given by x: long prompts in larger chunks."""
    if name in _SHAPE_AXES or any(x_value(name, value) is None for value in frame[name]):
        return False
    return bool((frame.groupby(axis)[name].nunique() <= 1).all())


def _along_text(frame: pd.DataFrame, name: str, axis: str) -> str:
    """What it is at which x: `chunk 8192 at 1k, 4k; 16384 at 512k.`."""
    told = []
    for value, rows in frame.groupby(name, sort=False):
        places = sorted({x_value(axis, place) or 0.0 for place in rows[axis]})
        told.append(f"{plain_text(value)} at {', '.join(map(tokens_text, places))}")
    return f"{name} {'; '.join(told)}."


def _panel_title(values: dict[str, Any], texts: dict[str, str]) -> str:
    heads, batch = values.pop("heads", None), values.pop("batch", None)
    words = [] if heads is None else [f"{heads} heads"]
    words += [] if batch is None else [f"batch {value_text(batch)}"]
    rest = category_text(values, texts)
    return ", ".join([*words, *([rest] if rest else [])])


def _reach(axis: str, panel: Panel) -> int:
    """How many positions on the x axis have a measured point."""
    return len({x_value(axis, value) for value in ok_rows(panel.rows)[axis]})


def categories_of(frame: pd.DataFrame) -> tuple[Category, ...]:
    """One category per group of equal inputs, the first varying axis kept together."""
    varying = split_axes(frame).varying
    texts = _texts(frame, varying)
    found = []
    for _, rows in frame.groupby("group_id", sort=False):
        values = {axis: rows[axis].iloc[0] for axis in varying}
        section = str(values[varying[0]]) if len(varying) > 1 else ""
        found.append(Category(label=category_text(values, texts), section=section, rows=rows))
    sections = list(dict.fromkeys(category.section for category in found))
    return tuple(sorted(found, key=lambda category: sections.index(category.section)))


def _texts(frame: pd.DataFrame, axes: tuple[str, ...]) -> dict[str, str]:
    return {
        full: short for axis in axes for full, short in distinct_texts(list(frame[axis])).items()
    }
