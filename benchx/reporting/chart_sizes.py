"""How copies are laid out in a chart: bandwidth over the size of a block, a line per way to copy.

Applies to points whose work has neither FLOPs nor tokens: time alone says little of them, since
they move different amounts. What is read from them is how much a small block costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchx.core.units import format_bytes
from benchx.reporting.chart_layout import x_value
from benchx.reporting.frame import ok_rows, split_axes
from benchx.reporting.theme import PALETTE, Style, styles_for
from benchx.reporting.wording import category_text, plain_text

if TYPE_CHECKING:
    import pandas as pd

LINES_PER_PANEL = 6
"""More can't be told apart where they meet."""

Key = tuple[str, ...]
"""What a line stands for, in every panel: its axis values in words, then its backend."""


@dataclass(frozen=True, kw_only=True)
class SizeAxis:
    """A numeric axis that bandwidth is drawn over, and the roles of the axes beside it.

    Attributes:
        name: The axis, bytes.
        label: What the chart's axis says.
        panels: Each of its values gets panels of its own.
        amount: Bytes that a call moves: they tell neither lines nor panels apart.
    """

    name: str
    label: str
    panels: str
    amount: str


_SIZE_AXES = (
    SizeAxis(name="block_bytes", label="block, bytes", panels="layout", amount="total_bytes"),
)


@dataclass(frozen=True, kw_only=True)
class SizeLine:
    """Points that differ in size only, all outcomes; `name` is unique in its panel."""

    key: Key
    name: str
    rows: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class SizePanel:
    """One small multiple; its lines may lack an ok point."""

    title: str
    lines: tuple[SizeLine, ...]

    def measured(self) -> tuple[SizeLine, ...]:
        """The lines that have something to show."""
        return tuple(line for line in self.lines if not ok_rows(line.rows).empty)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bandwidth over `axis`, all rows of a section."""

    axis: SizeAxis
    panels: tuple[SizePanel, ...]


def sizes_of(frame: pd.DataFrame) -> Sizes | None:
    """Bandwidth over size; None if an ok point has FLOPs or tokens, or no size axis varies."""
    measured = ok_rows(frame)
    rates = measured[["compute_tflop_s", "token_throughput_tok_s"]]
    if measured.empty or rates.notna().any(axis=None) or measured["bandwidth_gb_s"].isna().any():
        return None
    varying = split_axes(frame).varying
    for axis in _SIZE_AXES:
        if axis.name not in varying or axis.amount not in frame.columns:
            continue
        if all(x_value(axis.name, value) for value in frame[axis.name]):
            return Sizes(axis=axis, panels=_panels(frame, axis, varying))
    return None


def size_styles(panels: Sequence[SizePanel]) -> dict[Key, Style]:
    """A style per line: the same in every panel, and no two alike within one.

    A style that is little used comes first, so that as few as possible stand for two lines.
    """
    seen = [[line.key for line in panel.measured()] for panel in panels]
    found: dict[Key, int] = {}
    for key in (key for keys in seen for key in keys):
        if key not in found:
            near = {found.get(other) for keys in seen if key in keys for other in keys}
            free = [number for number in range(len(PALETTE) + len(near)) if number not in near]
            used = list(found.values())
            first = [number for number in free if number < len(PALETTE)] or free
            found[key] = min(first, key=lambda number: (used.count(number), number))
    styles = list(styles_for(map(str, range(max(found.values(), default=0) + 1))).values())
    return {key: styles[number] for key, number in found.items()}


def _panels(frame: pd.DataFrame, axis: SizeAxis, varying: Sequence[str]) -> tuple[SizePanel, ...]:
    others = [name for name in varying if name not in (axis.name, axis.panels, axis.amount)]
    # Words first: `host_to_device, not pinned`.
    drawn = sorted(others, key=lambda name: not isinstance(frame[name].iloc[0], str))
    values = frame[axis.panels] if axis.panels in varying else [""] * len(frame)
    found: list[SizePanel] = []
    for value in dict.fromkeys(values):
        rows = frame[[other == value for other in values]]
        lines = _lines(rows, axis, drawn)
        for group in _by_grid(lines, axis):
            for start in range(0, len(group), LINES_PER_PANEL):
                part = _named(group[start : start + LINES_PER_PANEL])
                found.append(SizePanel(title=_title(value, part, axis), lines=part))
    return tuple(found)


def _lines(rows: pd.DataFrame, axis: SizeAxis, drawn: Sequence[str]) -> list[SizeLine]:
    groups: dict[Key, list[Any]] = {}
    for label, row in rows.iterrows():
        words = tuple(_word(name, row[name]) for name in drawn)
        groups.setdefault((*words, str(row["backend"])), []).append(label)
    return [
        SizeLine(key=key, name="", rows=rows.loc[labels].sort_values(axis.name))
        for key, labels in groups.items()
    ]


def _word(axis: str, value: object) -> str:
    """Words speak for themselves, a property is named where it is missing, numbers need a name."""
    if value is None or value is True:
        return ""
    if value is False:
        return f"not {axis}"
    return value if isinstance(value, str) else category_text({axis: value}, {})


def _by_grid(lines: Sequence[SizeLine], axis: SizeAxis) -> list[list[SizeLine]]:
    """Lines that were measured at the same sizes, or at some of them, share a panel."""
    grids = [frozenset(zip(x.rows[axis.name], x.rows[axis.amount], strict=True)) for x in lines]
    widest_first = sorted(grids, key=len, reverse=True)
    homes = [next(other for other in widest_first if grid <= other) for grid in grids]
    return [
        [line for line, mine in zip(lines, homes, strict=True) if mine == home]
        for home in dict.fromkeys(homes)
    ]


def _named(lines: Sequence[SizeLine]) -> tuple[SizeLine, ...]:
    """Named by what tells them apart from the others of the panel; the backend only if it does."""
    several = len({line.key[-1] for line in lines}) > 1
    named = []
    for line in lines:
        words = [word for word in line.key[:-1] if word]
        if several or not words:
            words.append(line.key[-1])
        named.append(SizeLine(key=line.key, name=", ".join(words), rows=line.rows))
    return tuple(named)


def _title(value: object, lines: Sequence[SizeLine], axis: SizeAxis) -> str:
    amounts = sorted({float(amount) for line in lines for amount in line.rows[axis.amount]})
    ends = dict.fromkeys(format_bytes(amount) for amount in (amounts[0], amounts[-1]))
    moved = f"{' to '.join(ends)} a call"
    return f"{plain_text(value)}, {moved}" if value else moved
