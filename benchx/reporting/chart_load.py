"""Latencies and KV throughput of a server against its load or the length of its prompts."""

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
from benchx.reporting.serving_layout import PROMPT, SERIES, ServingPanel, measured
from benchx.reporting.theme import EDGE, EDGE_WIDTH, Style
from benchx.reporting.wording import tokens_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_IN = 2.3
_SINGLE_IN = 2.9
_LEAST_RANGE = 3.0
"""Ratio of the ends of the y axis, so that a small difference does not look like a large one."""

AGAINST_LOAD = (metric.TTFT.id, metric.TPOT.id)
AGAINST_PROMPT = (metric.TTFT.id, metric.KV_THROUGHPUT_BITS.id)
_QUANTITIES: Mapping[str, str] = {
    metric.TTFT.id: "time to first token, ms",
    metric.TPOT.id: "time per output token, ms",
    metric.KV_THROUGHPUT_BITS.id: "KV throughput, Gbit/s",
}
_AXES: Mapping[str, str] = {
    "concurrency": "concurrency, requests under way",
    "request_rate": "request rate, requests/s",
    "session_rate": "session rate, sessions started/s",
    PROMPT: "prompt length, tokens (k = 1024)",
}


def quantities(panels: Sequence[ServingPanel], names: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` of which some point has a figure."""
    return tuple(
        name
        for name in names
        if any(not measured(panel.rows, _main_column(name)).empty for panel in panels)
    )


def _main_column(name: str) -> str:
    """Times are distributions over requests, shown by their median; a throughput is one figure."""
    return name if name == metric.KV_THROUGHPUT_BITS.id else f"{name}_p50"


def serving_lines(
    panels: Sequence[ServingPanel],
    x: str,
    names: Sequence[str],
    *,
    styles: Mapping[str, Style],
    frame: Frame,
) -> Figure:
    """One row per workload, its quantities beside each other, all axes logarithmic.

    Filled marks are medians over requests, with their intervals over launches; hollow ones are
    99th percentiles, drawn where enough requests support them.

    Args:
        panels: At least one, at most three; together with one of the quantities.
        x: Axis of the load, or `PROMPT`.
        names: Metrics, of `AGAINST_LOAD` or `AGAINST_PROMPT`; those without a figure are left out.
        styles: Series -> style.
        frame: Title, notes and footer.
    """
    shown = quantities(panels, names)
    row_in = _SINGLE_IN if len(panels) == 1 else _ROW_IN
    series = {name: name for name in styles}
    figure = new_figure(frame, row_in * len(panels), above_in=legend_height_in(series))
    shared_legend(figure, styles, series)
    grid = figure.subplots(len(panels), len(shown), squeeze=False)
    for line, panel in zip(grid, panels, strict=True):
        for axes, name in zip(line, shown, strict=True):
            _draw(axes, panel, name, x, styles, row_in - 0.7)
    for axes in grid[-1]:
        axes.set_xlabel(_AXES[x])
    return figure


def _draw(
    axes: Axes,
    panel: ServingPanel,
    name: str,
    x: str,
    styles: Mapping[str, Style],
    height_in: float,
) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    labels: list[EndLabel] = []
    main = _main_column(name)
    for series, style in styles.items():
        rows = _by_place(panel.rows[panel.rows[SERIES] == series], x)
        for column in (main, f"{name}_p99"):
            if column in rows.columns and rows[column].notna().any():
                _draw_line(axes, rows, x, column, main, style)
                last = rows.dropna(subset=[column]).iloc[-1]
                text = column.removeprefix(name).lstrip("_")  # none for what is one figure
                end = EndLabel(text, float(last[x]), float(last[column]), style.colour)
                labels += [end] if text else []
    ticks = spaced_ticks(sorted({float(value) for value in panel.rows[x].dropna()}))
    words = tokens_text if x == PROMPT else "{:g}".format
    axes.set_xticks(ticks, [words(tick) for tick in ticks])
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


def _by_place(rows: pd.DataFrame, x: str) -> pd.DataFrame:
    """Rows by place; those that are not ok have no figure, so the line breaks there."""
    figures = [column for column in rows.columns if column.startswith(tuple(_QUANTITIES))]
    blank = rows[figures].where(rows["outcome"] == Outcome.OK.value)
    return blank.assign(**{x: rows[x].astype(float)}).dropna(subset=[x]).sort_values(x)


def _draw_line(
    axes: Axes, rows: pd.DataFrame, x: str, column: str, main: str, style: Style
) -> None:
    is_median = column == main
    axes.plot(
        rows[x], rows[column], color=style.colour, marker=style.marker,
        linestyle=style.dashes if is_median else (0, (1.5, 1.5)),
        linewidth=1.4 if is_median else 1.0,
        markerfacecolor=style.colour if is_median else "white",
        markeredgecolor=EDGE if is_median else style.colour,
        markeredgewidth=EDGE_WIDTH if is_median else 1.0,
    )  # fmt: skip
    ends = [column.removesuffix("_p50") + suffix for suffix in ("_ci_low", "_ci_high")]
    if is_median and all(end in rows.columns for end in ends):
        axes.vlines(rows[x], rows[ends[0]], rows[ends[1]], color=style.colour, linewidth=1.0)
