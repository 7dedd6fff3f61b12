"""Output throughput against interactivity: what an engine can serve, for how fast a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.reporting.chart_canvas import Frame, legend_height_in, new_figure, shared_legend
from benchx.reporting.chart_labels import SIZE_PT, place_labels
from benchx.reporting.chart_scales import label_log_axis
from benchx.reporting.serving_layout import (
    SERIES,
    ServingPanel,
    front,
    load_axis,
    load_text,
    measured,
    own_load,
)
from benchx.reporting.theme import EDGE, EDGE_WIDTH, FAINT, INK, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_IN = 2.5
_SINGLE_IN = 3.6
_LEAST_RANGE = 3.0
"""Ratio of the ends of an axis."""

_ROOM = 0.07
"""Beside the outermost points, as a share of what lies between them: their labels stand there."""
X = f"{metric.INTERACTIVITY.id}_p50"


def throughput_column(panels: Sequence[ServingPanel]) -> str:
    """Per GPU where every ok point has it: a mixture could not be compared."""
    rows = [row for panel in panels for _, row in measured(panel.rows, X).iterrows()]
    per_gpu = metric.OUTPUT_PER_GPU.id
    has_all = bool(rows) and all(row.get(per_gpu, math.nan) > 0 for row in rows)
    return per_gpu if has_all else metric.OUTPUT_THROUGHPUT.id


def pareto(
    panels: Sequence[ServingPanel], y: str, *, styles: Mapping[str, Style], frame: Frame
) -> Figure:
    """One panel per workload; the line is the front of all points, labels are their loads.

    Args:
        panels: At least one, each with a point that has both figures; at most six.
        y: Column of the throughput, tok/s.
        styles: Series -> style.
        frame: Title, notes and footer.
    """
    columns = 1 if len(panels) == 1 else 2
    lines = math.ceil(len(panels) / columns)
    labels = {name: name for name in styles}
    height_in = (_SINGLE_IN if columns == 1 else _PANEL_IN) * lines
    figure = new_figure(frame, height_in, above_in=legend_height_in(labels))
    spots = list(figure.subplots(lines, columns, squeeze=False).flat)
    for index, (axes, panel) in enumerate(zip(spots, panels, strict=False)):
        _draw(axes, panel, y, styles)
        if index + columns >= len(panels):
            axes.set_xlabel("interactivity, tok/s per user (median)")
        if index % columns == 0:
            axes.set_ylabel("output, tok/s per GPU" if y.endswith("gpu") else "output, tok/s")
    for axes in spots[len(panels) :]:
        axes.set_axis_off()
    shared_legend(figure, styles, labels)
    return figure


def _draw(axes: Axes, panel: ServingPanel, y: str, styles: Mapping[str, Style]) -> None:
    rows = measured(panel.rows, X, y)
    points = [(float(row[X]), float(row[y])) for _, row in rows.iterrows()]
    best = front(points)
    axes.plot(
        [x for x, _ in best], [height for _, height in best], color=FAINT, linewidth=1.0,
        zorder=2,
    )  # fmt: skip
    for name, style in styles.items():
        own = rows[rows[SERIES] == name]
        axes.errorbar(
            own[X], own[y], xerr=_bars(own, X), yerr=_bars(own, y), linestyle="none",
            elinewidth=1.0, capsize=1.8, marker=style.marker, color=style.colour,
            markeredgecolor=EDGE, markeredgewidth=EDGE_WIDTH, zorder=3, label=name,
        )  # fmt: skip
    _scale(axes, [x for x, _ in points], [height for _, height in points])
    if load_axis(panel.rows) is not None:
        loads = [own_load(row) for _, row in rows.iterrows()]
        _label(axes, points, ["" if load is None else load_text(*load) for load in loads])
    if panel.title:
        axes.set_title(panel.title)


def has_intervals(panels: Sequence[ServingPanel], column: str) -> bool:
    """Whether some point has an interval over launches of this figure."""
    return any(_bars(panel.rows, column) is not None for panel in panels)


def _bars(rows: pd.DataFrame, column: str) -> list[pd.Series] | None:
    """Lengths below and above the points; None where the figure has no interval."""
    low, high = (f"{column.removesuffix('_p50')}_ci_{end}" for end in ("low", "high"))
    if low not in rows.columns or not rows[low].notna().any():
        return None
    below, above = rows[column] - rows[low], rows[high] - rows[column]
    return [side.clip(lower=0).fillna(0.0) for side in (below, above)]


def _label(axes: Axes, points: Sequence[tuple[float, float]], texts: Sequence[str]) -> None:
    """Write the load beside each point; after the scales are set, which say where that is."""
    places = place_labels(_on_page_pt(axes, points), texts)
    for point, text, place in zip(points, texts, places, strict=True):
        axes.annotate(
            text, point, xytext=(place.dx_pt, place.dy_pt), textcoords="offset points",
            ha=place.ha, va=place.va, fontsize=SIZE_PT, color=INK, zorder=4,
        )  # fmt: skip


def _on_page_pt(axes: Axes, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    figure = axes.get_figure()
    assert figure is not None
    return [(72 / figure.dpi * x, 72 / figure.dpi * y) for x, y in axes.transData.transform(points)]


def _scale(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    """Both logarithmic: equal ratios look equal, and engines differ by ratios."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*_limits(xs))
    axes.set_ylim(*_limits(ys))
    label_log_axis(axes.xaxis)
    label_log_axis(axes.yaxis)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """A little room beside the values, and a small difference does not fill the axis."""
    least, most = min(values), max(values)
    reach = most / least
    room = max(reach**_ROOM, math.sqrt(_LEAST_RANGE / reach))
    return least / room, most * room
