"""Time to first token and time per output token against the load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.core.outcome import Outcome
from benchx.reporting.chart_canvas import (
    EndLabel,
    Frame,
    label_ends,
    legend_height_in,
    new_figure,
    shared_legend,
)
from benchx.reporting.chart_scales import label_log_axis, spaced_ticks
from benchx.reporting.serving_layout import SERIES, ServingPanel, measured
from benchx.reporting.theme import EDGE, EDGE_WIDTH, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_IN = 2.3
_SINGLE_IN = 2.9
_LEAST_RANGE = 3.0
"""Ratio of the ends of the y axis, so that a small difference does not look like a large one."""

_QUANTITIES: Mapping[str, str] = {
    metric.TTFT.id: "time to first token, ms",
    metric.TPOT.id: "time per output token, ms",
}
_LOADS: Mapping[str, str] = {
    "concurrency": "concurrency, requests under way",
    "request_rate": "request rate, requests/s",
}


def quantities(panels: Sequence[ServingPanel]) -> tuple[str, ...]:
    """The times of which some point has a median."""
    return tuple(
        name
        for name in _QUANTITIES
        if any(not measured(panel.rows, f"{name}_p50").empty for panel in panels)
    )


def load_lines(
    panels: Sequence[ServingPanel], load: str, *, styles: Mapping[str, Style], frame: Frame
) -> Figure:
    """One row per workload, TTFT and TPOT beside each other, both axes logarithmic.

    Filled marks are medians over requests, with their intervals over launches; hollow ones are
    99th percentiles, drawn where enough requests support them.

    Args:
        panels: At least one, at most three; together with one of the times.
        load: Axis of the load.
        styles: Series -> style.
        frame: Title, notes and footer.
    """
    shown = quantities(panels)
    row_in = _SINGLE_IN if len(panels) == 1 else _ROW_IN
    names = {name: name for name in styles}
    figure = new_figure(frame, row_in * len(panels), above_in=legend_height_in(names))
    shared_legend(figure, styles, names)
    grid = figure.subplots(len(panels), len(shown), squeeze=False)
    for line, panel in zip(grid, panels, strict=True):
        for axes, name in zip(line, shown, strict=True):
            _draw(axes, panel, name, load, styles, row_in - 0.7)
    for axes in grid[-1]:
        axes.set_xlabel(_LOADS[load])
    return figure


def _draw(
    axes: Axes,
    panel: ServingPanel,
    name: str,
    load: str,
    styles: Mapping[str, Style],
    height_in: float,
) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    labels: list[EndLabel] = []
    for series, style in styles.items():
        rows = _by_load(panel.rows[panel.rows[SERIES] == series], load)
        for statistic in ("p50", "p99"):
            column = f"{name}_{statistic}"
            if column in rows.columns and rows[column].notna().any():
                _draw_line(axes, rows, load, column, style)
                last = rows.dropna(subset=[column]).iloc[-1]
                place, height = float(last[load]), float(last[column])
                labels.append(EndLabel(statistic, place, height, style.colour))
    ticks = spaced_ticks(sorted({float(value) for value in panel.rows[load].dropna()}))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.margins(x=0.08, y=0.12)
    axes.autoscale_view()
    low, high = axes.get_ylim()
    room = max(1.0, math.sqrt(_LEAST_RANGE * low / high))
    axes.set_ylim(low / room, high * room)
    label_log_axis(axes.yaxis)
    axes.set_ylabel(_QUANTITIES[name])
    axes.set_title(panel.title)
    if len(styles) == 1:  # else the marks and the legend tell them apart
        label_ends(axes, labels, height_in=height_in)


def _by_load(rows: pd.DataFrame, load: str) -> pd.DataFrame:
    """Rows by load; those that are not ok have no figure, so the line breaks there."""
    times = [column for column in rows.columns if column.startswith(tuple(_QUANTITIES))]
    blank = rows[times].where(rows["outcome"] == Outcome.OK.value)
    return blank.assign(**{load: rows[load].astype(float)}).dropna(subset=[load]).sort_values(load)


def _draw_line(axes: Axes, rows: pd.DataFrame, load: str, column: str, style: Style) -> None:
    is_median = column.endswith("_p50")
    axes.plot(
        rows[load], rows[column], color=style.colour, marker=style.marker,
        linestyle=style.dashes if is_median else (0, (1.5, 1.5)),
        linewidth=1.4 if is_median else 1.0,
        markerfacecolor=style.colour if is_median else "white",
        markeredgecolor=EDGE if is_median else style.colour,
        markeredgewidth=EDGE_WIDTH if is_median else 1.0,
    )  # fmt: skip
    ends = [column.replace("_p50", suffix) for suffix in ("_ci_low", "_ci_high")]
    if is_median and all(end in rows.columns for end in ends):
        axes.vlines(rows[load], rows[ends[0]], rows[ends[1]], color=style.colour, linewidth=1.0)
