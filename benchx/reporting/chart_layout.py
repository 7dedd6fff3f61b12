"""How an operator's points are laid out in a chart: which axis is x, which make panels or rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchx.core.axes import parse_lengths
from benchx.reporting.frame import ok_rows, split_axes
from benchx.reporting.wording import category_text, distinct_texts

if TYPE_CHECKING:
    import pandas as pd

_X_AXES = ("seqlens", "context", "batch", "prefix", "tokens")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One small multiple: its title and the rows (all backends, all outcomes) it shows."""

    title: str
    rows: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over a numeric axis, one panel per combination of the other varying axes."""

    x: str
    panels: tuple[Panel, ...]


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
    """Lines over the first axis that gives every panel two or more points; None if none does."""
    varying = split_axes(frame).varying
    plans = [_lines_over(frame, axis, varying) for axis in _X_AXES if axis in varying]
    usable = [plan for plan in plans if plan and all(_reach(plan.x, p) > 1 for p in plan.panels)]
    return min(usable, key=lambda plan: len(plan.panels), default=None)


def scaling_of(frame: pd.DataFrame) -> Lines | None:
    """Lines over the length of single sequences, panels with one length left out; None if empty."""
    single = frame[[x_value("seqlens", value) is not None for value in frame.get("seqlens", [])]]
    if single.empty or len(single) == len(frame):
        return None
    plan = _lines_over(single, "seqlens", split_axes(single).varying)
    panels = tuple(p for p in plan.panels if _reach("seqlens", p) > 1) if plan else ()
    return Lines(x="seqlens", panels=panels) if panels else None


def _lines_over(frame: pd.DataFrame, axis: str, varying: tuple[str, ...]) -> Lines | None:
    if any(x_value(axis, value) in (None, 0.0) for value in frame[axis]):
        return None
    others = [name for name in varying if name != axis]
    if not others:
        return Lines(x=axis, panels=(Panel(title="", rows=frame),))
    texts = _texts(frame, tuple(others))
    groups: dict[str, list[Any]] = {}
    for label, row in frame.iterrows():
        values = {name: row[name] for name in others}
        groups.setdefault(_panel_title(values, texts), []).append(label)
    panels = (Panel(title=title, rows=frame.loc[labels]) for title, labels in groups.items())
    return Lines(x=axis, panels=tuple(panels))


def _panel_title(values: dict[str, Any], texts: dict[str, str]) -> str:
    heads = values.pop("heads", None)
    words = [] if heads is None else [f"{heads} heads"]
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
