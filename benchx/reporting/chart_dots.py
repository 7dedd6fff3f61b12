"""Rows of dots with intervals: one row per group of equal inputs, one dot per backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.reporting.theme import EDGE, EDGE_WIDTH, FAINT, INK, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_IN = 0.235
"""Height of one row, inches."""

_DODGE = 0.15
_BAND = "#f4f4f4"
_MARGIN = 0.05
_LEAST_MARGIN = 1.1
_LINEAR_MARGIN = 1.02
_BEYOND = 0.12
"""Of the width: what a mark beyond the scale takes with its value."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One figure with its interval, in the units of the x axis."""

    backend: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Failure:
    """A backend that should have run here and did not: drawn hollow at the right edge."""

    backend: str
    word: str


@dataclass(frozen=True)
class Beyond:
    """A figure left of the scale: its mark stands at the edge, with an arrow and its value."""

    backend: str
    text: str


@dataclass(frozen=True, kw_only=True)
class DotRow:
    """One row; a line separates rows of different `section`, unless each is a row by itself."""

    label: str
    section: str
    dots: tuple[Dot, ...]
    failures: tuple[Failure, ...] = ()
    beyond: tuple[Beyond, ...] = ()


def draw_dots(
    axes: Axes,
    rows: Sequence[DotRow],
    styles: Mapping[str, Style],
    *,
    include: Sequence[float] = (),
    is_log: bool = True,
) -> float:
    """Draw the rows from top to bottom; returns x where the scale begins.

    Left of it are the marks of figures beyond it, behind a line.

    Args:
        axes: Empty axes.
        rows: At least one dot in all.
        styles: Backend -> style, in the order in which backends are set apart within a row.
        include: Further x values that must be visible.
        is_log: Whether the x axis is logarithmic; else it is linear and starts at 0.
    """
    names = [name for name in styles if any(name in _names(row) for row in rows)]
    offsets = {name: (index - (len(names) - 1) / 2) * _DODGE for index, name in enumerate(names)}
    axes.set_xscale("log" if is_log else "linear")
    start, end = _range(rows, include, is_log=is_log)
    aside = _BEYOND * max(len(row.beyond) for row in rows)
    axes.set_xlim(start * (start / end) ** (aside / (1 - aside)), end)
    if aside:
        axes.axvline(start, color=FAINT, linewidth=0.6, zorder=1)
    for height, row in enumerate(rows):
        if height % 2:
            axes.axhspan(height - 0.5, height + 0.5, color=_BAND, zorder=0, linewidth=0)
        if height and _is_parted(rows, height):
            axes.axhline(height - 0.5, color=FAINT, linewidth=0.6)
        _draw_failures(axes, row, height, styles)
        _draw_beyond(axes, row, height, styles)
    for name in names:
        _draw_backend(axes, rows, name, offsets[name], styles[name])
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    return start


def _is_parted(rows: Sequence[DotRow], height: int) -> bool:
    """Whether a section ends above this row: between two that are one row each, a line is noise."""
    sections = [row.section for row in rows]
    above, below = sections[height - 1], sections[height]
    return above != below and max(sections.count(above), sections.count(below)) > 1


def _range(
    rows: Sequence[DotRow], include: Sequence[float], *, is_log: bool
) -> tuple[float, float]:
    dots = [dot for row in rows for dot in row.dots]
    ends = [end for dot in dots for end in (dot.low, dot.value, dot.high) if end is not None]
    low, high = min((*ends, *include)), max((*ends, *include))
    if not is_log:
        return 0.0, high * _LINEAR_MARGIN
    margin = max((high / low) ** _MARGIN, _LEAST_MARGIN)
    return low / margin, high * margin


def _names(row: DotRow) -> set[str]:
    drawn: tuple[Dot | Failure | Beyond, ...] = (*row.dots, *row.failures, *row.beyond)
    return {one.backend for one in drawn}


def _draw_backend(
    axes: Axes, rows: Sequence[DotRow], name: str, offset: float, style: Style
) -> None:
    placed = [(height, dot) for height, row in enumerate(rows) for dot in row.dots]
    mine = [(height + offset, dot) for height, dot in placed if dot.backend == name]
    if not mine:
        return
    below = [0.0 if dot.low is None else max(0.0, dot.value - dot.low) for _, dot in mine]
    above = [0.0 if dot.high is None else max(0.0, dot.high - dot.value) for _, dot in mine]
    axes.errorbar(
        [dot.value for _, dot in mine], [height for height, _ in mine], xerr=[below, above],
        marker=style.marker, color=style.colour, linestyle="none", elinewidth=1.0, capsize=1.8,
        markeredgecolor=EDGE, markeredgewidth=EDGE_WIDTH,
    )  # fmt: skip


def _draw_failures(axes: Axes, row: DotRow, height: float, styles: Mapping[str, Style]) -> None:
    where = axes.get_yaxis_transform()
    for index, failure in enumerate(row.failures):
        style = styles[failure.backend]
        position = 0.985 - 0.11 * index
        axes.plot(
            position, height, marker=style.marker, color=style.colour, markerfacecolor="none",
            linestyle="none", transform=where, clip_on=False,
        )  # fmt: skip
        axes.text(
            position - 0.014, height, failure.word, transform=where, ha="right", va="center",
            fontsize=6.5, color=INK,
        )  # fmt: skip


def _draw_beyond(axes: Axes, row: DotRow, height: float, styles: Mapping[str, Style]) -> None:
    where = axes.get_yaxis_transform()
    for index, one in enumerate(row.beyond):
        style, position = styles[one.backend], 0.03 + _BEYOND * index
        axes.plot(
            position, height, marker=style.marker, color=style.colour, linestyle="none",
            markeredgecolor=EDGE, markeredgewidth=EDGE_WIDTH, transform=where,
        )  # fmt: skip
        for text, aside, ha in (("\N{LEFTWARDS ARROW}", -0.01, "right"), (one.text, 0.012, "left")):
            axes.text(
                position + aside, height, text, transform=where, ha=ha, va="center_baseline",
                fontsize=6.5, color=INK,
            )  # fmt: skip
