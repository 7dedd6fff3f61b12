"""Times and rates: lines over a numeric axis, or rows of dots where the points share none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.outcome import Outcome
from benchx.reporting.chart_canvas import (
    EndLabel,
    Frame,
    label_ends,
    legend_above,
    new_figure,
)
from benchx.reporting.chart_dots import ROW_IN, Dot, DotRow, Failure, draw_dots
from benchx.reporting.chart_layout import Category, Lines, Panel, x_value
from benchx.reporting.chart_scales import label_log_axis, spaced_ticks
from benchx.reporting.frame import TIME, TIME_HIGH, TIME_LOW, ok_rows
from benchx.reporting.theme import EDGE, EDGE_WIDTH, INK, Style
from benchx.reporting.wording import axis_label, tokens_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_IN = 2.15
_SINGLE_IN = 3.4
_LEAST_RANGE = 1.5
"""Ratio of the ends of the y axis."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What is drawn: its name with the unit, and the columns of its median and interval.

    Attributes:
        factor: What the columns are multiplied by for that unit.
    """

    label: str
    value: str
    low: str
    high: str
    factor: float = 1.0


DEVICE_TIME = Quantity(label="device time, ms", value=TIME, low=TIME_LOW, high=TIME_HIGH)


def latency_lines(
    plan: Lines,
    what: Quantity = DEVICE_TIME,
    *,
    styles: Mapping[str, Style],
    frame: Frame,
    is_y_shared: bool = True,
) -> Figure:
    """Medians over one axis, both logarithmic, bars = intervals.

    Args:
        plan: At most six panels.
        what: What is drawn of each row.
        styles: Backend -> style.
        frame: Title, notes and footer.
        is_y_shared: Whether heights can be compared across panels. If not, each panel reaches over
            its own figures, so that lines that lie close can be seen to cross.
    """
    columns = 1 if len(plan.panels) == 1 else 2
    lines = math.ceil(len(plan.panels) / columns)
    panel_in = _SINGLE_IN if columns == 1 else _PANEL_IN
    figure = new_figure(frame, panel_in * lines)
    grid = figure.subplots(lines, columns, sharey=is_y_shared, squeeze=False)
    spots = list(grid.flat)
    for axes, panel in zip(spots, plan.panels, strict=False):
        _draw_panel(axes, plan.x, panel, what, styles)
    for axes in spots[len(plan.panels) :]:
        axes.set_axis_off()
    for axes in spots[:1] if is_y_shared else spots[: len(plan.panels)]:
        _widen(axes)
        label_log_axis(axes.yaxis)
    for index, (axes, panel) in enumerate(zip(spots, plan.panels, strict=False)):
        _label_lines(axes, plan.x, panel, what, styles, panel_in - 0.6)
        if index + columns >= len(plan.panels):
            axes.set_xlabel(_x_label(axes, plan.x))
        if index % columns == 0:
            axes.set_ylabel(what.label)
    return figure


def _widen(axes: Axes) -> None:
    """A small difference does not fill the height."""
    low, high = axes.get_ylim()
    room = max(1.0, math.sqrt(_LEAST_RANGE * low / high))
    axes.set_ylim(low / room, high * room)


def _x_label(axes: Axes, axis: str) -> str:
    """Explains the k of tick labels where one has it."""
    has_k = any(tick.get_text().endswith(("k", "M")) for tick in axes.get_xticklabels())
    return f"{axis_label(axis)} (k = 1024)" if has_k else axis_label(axis)


def _draw_panel(
    axes: Axes, x: str, panel: Panel, what: Quantity, styles: Mapping[str, Style]
) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for backend, style in styles.items():
        rows = panel.rows[panel.rows["backend"] == backend]
        if not ok_rows(rows).empty:
            _draw_line(axes, _by_place(rows, x, what), what, style)
    _mark_failures(axes, x, panel.rows, styles)
    places = sorted({x_value(x, value) or 0.0 for value in panel.rows[x]})
    ticks = spaced_ticks(places)
    axes.set_xticks(ticks, [tokens_text(place) for place in ticks])
    axes.minorticks_off()
    axes.margins(x=0.06)
    if panel.title:
        axes.set_title(panel.title)


def _by_place(rows: pd.DataFrame, x: str, what: Quantity) -> pd.DataFrame:
    """Rows in order of x, with NaN for those that are not ok: the line breaks there."""
    columns = [what.value, what.low, what.high]
    measured = what.factor * rows[columns].where(rows["outcome"] == Outcome.OK.value)
    return measured.assign(place=[x_value(x, value) or 0.0 for value in rows[x]]).sort_values(
        "place"
    )


def _draw_line(axes: Axes, rows: pd.DataFrame, what: Quantity, style: Style) -> None:
    low = (rows[what.value] - rows[what.low]).clip(lower=0).fillna(0.0)
    high = (rows[what.high] - rows[what.value]).clip(lower=0).fillna(0.0)
    axes.errorbar(
        rows["place"], rows[what.value], yerr=[low, high], color=style.colour, marker=style.marker,
        linestyle=style.dashes, elinewidth=1.0, capsize=2, markeredgecolor=EDGE,
        markeredgewidth=EDGE_WIDTH,
    )  # fmt: skip


def _mark_failures(axes: Axes, x: str, rows: pd.DataFrame, styles: Mapping[str, Style]) -> None:
    """Hollow marks along the upper edge, with the outcome in words."""
    seen: dict[float, int] = {}
    for _, row in rows.iterrows():
        outcome = Outcome(row["outcome"])
        if not outcome.is_failure:
            continue
        place = x_value(x, row[x]) or 0.0
        depth = seen[place] = seen.get(place, -1) + 1
        style = styles[row["backend"]]
        axes.plot(
            place, 0.97 - 0.09 * depth, marker=style.marker, color=style.colour,
            markerfacecolor="none", transform=axes.get_xaxis_transform(), clip_on=False,
        )  # fmt: skip
        axes.annotate(
            outcome.value, (place, 0.97 - 0.09 * depth), xycoords=axes.get_xaxis_transform(),
            xytext=(-5, 0), textcoords="offset points", ha="right", va="center",
            fontsize=6.5, color=INK,
        )  # fmt: skip


def _label_lines(
    axes: Axes,
    x: str,
    panel: Panel,
    what: Quantity,
    styles: Mapping[str, Style],
    height_in: float,
) -> None:
    labels = []
    for backend, style in styles.items():
        own = panel.rows[panel.rows["backend"] == backend]
        rows = _by_place(own, x, what).dropna(subset=[what.value])
        if not rows.empty:
            last = rows.iloc[-1]
            end = float(last["place"]), float(last[what.value])
            labels.append(EndLabel(backend, *end, style.colour))
    label_ends(axes, labels, height_in=height_in)


def latency_dots(
    categories: Sequence[Category], *, styles: Mapping[str, Style], frame: Frame
) -> Figure:
    """Median device time (ms, logarithmic) per group of equal inputs, bars = intervals."""
    figure = new_figure(frame, ROW_IN * len(categories) + 0.75)
    axes = figure.subplots()
    rows = [_dot_row(category) for category in categories]
    draw_dots(axes, rows, styles)
    label_log_axis(axes.xaxis)
    axes.set_xlabel("device time, ms")
    shown = {dot.backend for row in rows for dot in row.dots}
    shown |= {failure.backend for row in rows for failure in row.failures}
    legend_above(axes, styles, {name: name for name in styles if name in shown})
    return figure


def _dot_row(category: Category) -> DotRow:
    measured = [row for _, row in ok_rows(category.rows).iterrows()]
    failed = category.rows[[Outcome(word).is_failure for word in category.rows["outcome"]]]
    return DotRow(
        label=category.label,
        section=category.section,
        dots=tuple(
            Dot(
                backend=str(row["backend"]),
                value=float(row[TIME]),
                low=_known(row[TIME_LOW]),
                high=_known(row[TIME_HIGH]),
            )
            for row in measured
        ),
        failures=tuple(
            Failure(str(row["backend"]), str(row["outcome"])) for _, row in failed.iterrows()
        ),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
