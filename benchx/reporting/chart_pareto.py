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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_IN = 2.5
_SINGLE_IN = 3.6
_WIDE_RANGE = 10.0
_ROOM = 1.15
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
        axes.plot(
            own[X], own[y], linestyle="none", marker=style.marker, color=style.colour,
            markeredgecolor=EDGE, markeredgewidth=EDGE_WIDTH, zorder=3, label=name,
        )  # fmt: skip
    _scale(axes, [x for x, _ in points], [height for _, height in points])
    if load_axis(panel.rows) is not None:
        loads = [own_load(row) for _, row in rows.iterrows()]
        _label(axes, points, ["" if load is None else load_text(*load) for load in loads])
    if panel.title:
        axes.set_title(panel.title)


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


def _limits(values: Sequence[float]) -> tuple[bool, float, float]:
    """Whether the scale is logarithmic (more than one power of ten), and its ends."""
    least, most = min(values), max(values)
    if most <= _WIDE_RANGE * least:
        return False, 0.0, most * _ROOM
    return True, least / _ROOM, most * _ROOM


def _scale(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    is_log, *ends = _limits(xs)
    axes.set_xscale("log" if is_log else "linear")
    axes.set_xlim(*ends)
    if is_log:
        label_log_axis(axes.xaxis)
    is_log, *ends = _limits(ys)
    axes.set_yscale("log" if is_log else "linear")
    axes.set_ylim(*ends)
    if is_log:
        label_log_axis(axes.yaxis)
