"""Bandwidth over the size of a block: small multiples with a line per way to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchx.reporting.chart_canvas import Frame, new_figure
from benchx.reporting.chart_scales import label_log_axis, spaced_ticks
from benchx.reporting.chart_sizes import Key, SizeAxis, SizeLine, SizePanel
from benchx.reporting.frame import TIME, TIME_HIGH, TIME_LOW, ok_rows
from benchx.reporting.theme import EDGE, EDGE_WIDTH, Style
from benchx.reporting.wording import tokens_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PANELS_PER_PAGE = 5
"""As many as a page of paper holds."""

_PANEL_IN = 1.75
_SINGLE_IN = 2.6
_BELOW_IN = 0.3
_X_MARGIN = 1.7


def bandwidth_lines(
    panels: Sequence[SizePanel], axis: SizeAxis, *, styles: Mapping[Key, Style], frame: Frame
) -> Figure:
    """Bandwidth (GB/s) over size (bytes), both logarithmic and alike in all panels.

    Panels lie below one another, so that equal sizes do.

    Args:
        panels: At most `PANELS_PER_PAGE`, each with an ok point.
        axis: The size axis.
        styles: Line -> style.
        frame: Title, notes and footer.
    """
    panel_in = _SINGLE_IN if len(panels) == 1 else _PANEL_IN
    figure = new_figure(frame, panel_in * len(panels) + _BELOW_IN)
    column = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, panel in zip(column, panels, strict=True):
        _draw_panel(axes, panel, axis, styles)
        axes.set_ylabel("bandwidth, GB/s")
    _size_scale(column[-1], _places(panels, axis))
    column[-1].set_xlabel(f"{axis.label} (k = 1024)")
    label_log_axis(column[0].yaxis)
    return figure


def _places(panels: Sequence[SizePanel], axis: SizeAxis) -> list[float]:
    """All measured sizes, ascending."""
    lines = [line for panel in panels for line in panel.measured()]
    return sorted({float(size) for line in lines for size in ok_rows(line.rows)[axis.name]})


def _size_scale(axes: Axes, places: Sequence[float]) -> None:
    ticks = spaced_ticks(places)
    axes.set_xlim(places[0] / _X_MARGIN, places[-1] * _X_MARGIN)
    axes.set_xticks(ticks, [tokens_text(tick) for tick in ticks])
    axes.minorticks_off()


def _draw_panel(axes: Axes, panel: SizePanel, axis: SizeAxis, styles: Mapping[Key, Style]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(panel.title)
    for line in panel.measured():
        _draw_line(axes, line, axis, styles[line.key])
    axes.legend(
        handles=[_handle(line, styles[line.key]) for line in panel.measured()],
        loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, handlelength=2.8,
        labelspacing=0.4, fontsize=7.5,
    )  # fmt: skip


def _draw_line(axes: Axes, line: SizeLine, axis: SizeAxis, style: Style) -> None:
    """A point without a figure is NaN: the line breaks there; a point alone is a marker."""
    rows = line.rows
    ok = rows.index.isin(ok_rows(rows).index)
    rates = rows["bandwidth_gb_s"].where(ok)
    axes.errorbar(
        rows[axis.name].astype(float), rates, yerr=_bars(rows, rates), elinewidth=1.0, capsize=2,
        **_look(style),
    )  # fmt: skip


def _bars(rows: pd.DataFrame, rates: pd.Series) -> list[pd.Series]:
    """Below and above: the interval of the time, as rates of the same bytes; NaN without one."""
    low, high = rates * rows[TIME] / rows[TIME_HIGH], rates * rows[TIME] / rows[TIME_LOW]
    return [(rates - low).clip(lower=0), (high - rates).clip(lower=0)]


def _handle(line: SizeLine, style: Style) -> Line2D:
    from matplotlib.lines import Line2D

    look = _look(style)
    if len(ok_rows(line.rows)) == 1:
        look["linestyle"] = "none"
    return Line2D([], [], label=line.name, **look)


def _look(style: Style) -> dict[str, Any]:
    return {
        "color": style.colour, "marker": style.marker, "linestyle": style.dashes,
        "markeredgecolor": EDGE, "markeredgewidth": EDGE_WIDTH,
    }  # fmt: skip
