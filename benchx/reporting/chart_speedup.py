"""Speed-up over one backend: rows of dots with intervals, geometric means as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchx.reporting.chart_canvas import Frame, legend_above, new_figure
from benchx.reporting.chart_dots import ROW_IN, Beyond, Dot, DotRow, draw_dots
from benchx.reporting.chart_layout import Category
from benchx.reporting.chart_scales import label_log_axis
from benchx.reporting.numbers import ratio
from benchx.reporting.speedup import MeanSpeedUp, SpeedUp
from benchx.reporting.theme import INK, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_LEAST_RANGE = (0.85, 1.15)
"""Always visible, so that equal speeds do not look like a difference."""

SLOWEST_DRAWN = 0.25
"""Slower ones are written at the edge: to scale, they would press the others into a corner."""

NEAR_ONE = 0.03
"""Means nearer to 1 than this have no line of their own: it would cover that of the baseline."""


def speedup_dots(
    categories: Sequence[Category],
    found: Sequence[SpeedUp],
    means: Sequence[MeanSpeedUp],
    *,
    styles: Mapping[str, Style],
    frame: Frame,
) -> Figure:
    """Baseline's device time / each backend's, logarithmic; right of 1 is faster.

    Args:
        categories: Rows from top to bottom; those without a speed-up are left out.
        found: Speed-ups of these categories.
        means: Geometric means over all categories of the operator, drawn as lines.
        styles: Backend -> style.
        frame: Title, notes and footer.
    """
    least = slowest_drawn(found)
    made = (_row(category, found, least) for category in categories)
    rows = [row for row in made if row.dots or row.beyond]
    slowest = min((dot.value for row in rows for dot in row.dots), default=1.0)
    lines = [one for one in means if one.ratio >= slowest and abs(one.ratio - 1) >= NEAR_ONE]
    figure = new_figure(frame, ROW_IN * len(rows) + 0.8)
    axes = figure.subplots()
    include = (*_LEAST_RANGE, *(one.ratio for one in lines))
    start = draw_dots(axes, rows, styles, include=include)
    axes.axvline(1.0, color=INK, linewidth=1.0, zorder=1)
    for mean in lines:
        axes.axvline(
            mean.ratio, color=styles[mean.backend].colour, linewidth=1.0, zorder=1,
            linestyle=styles[mean.backend].dashes,
        )  # fmt: skip
    label_log_axis(axes.xaxis, above=start)
    baseline = means[0].baseline
    axes.set_xlabel(f"speed-up over {baseline} (device time of {baseline} / device time)")
    legend_above(axes, styles, {mean.backend: _legend_text(mean) for mean in means})
    return figure


def slowest_drawn(found: Sequence[SpeedUp]) -> float:
    """The least speed-up that is drawn to scale; 0 where all or none are slower than the limit."""
    ratios = [one.ratio for one in found]
    return SLOWEST_DRAWN if min(ratios) < SLOWEST_DRAWN <= max(ratios) else 0.0


def _row(category: Category, found: Sequence[SpeedUp], least: float) -> DotRow:
    group = str(category.rows["group_id"].iloc[0])
    own = [one for one in found if one.group_id == group]
    return DotRow(
        label=category.label,
        section=category.section,
        dots=tuple(
            Dot(backend=one.backend, value=one.ratio, low=one.low, high=one.high)
            for one in own
            if one.ratio >= least
        ),
        beyond=tuple(Beyond(one.backend, ratio(one.ratio)) for one in own if one.ratio < least),
    )


def _legend_text(mean: MeanSpeedUp) -> str:
    return f"{mean.backend} {ratio(mean.ratio)}x ({mean.groups} of {mean.groups_in_all})"


def mean_text(mean: MeanSpeedUp) -> str:
    """`cudnn 1.35x over flashkda (geometric mean of 16 of 16 groups)`."""
    scope = f"{mean.groups} of {mean.groups_in_all} groups"
    return f"{mean.backend} {ratio(mean.ratio)}x over {mean.baseline} (geometric mean of {scope})"
