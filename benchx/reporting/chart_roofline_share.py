"""Share of the roofline: rows of dots in percent, one per backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchx.reporting.chart_canvas import Frame, legend_above, new_figure
from benchx.reporting.chart_dots import ROW_IN, Dot, DotRow, draw_dots
from benchx.reporting.chart_layout import Category
from benchx.reporting.frame import TIME, TIME_HIGH, TIME_LOW, ok_rows
from benchx.reporting.theme import INK, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_WHOLE = 100.0


def share_dots(
    categories: Sequence[Category], *, styles: Mapping[str, Style], frame: Frame
) -> Figure:
    """Least time by the ceilings / device time, percent, from 0 to 100 or to what is above it.

    Args:
        categories: Rows from top to bottom, with one known share at least.
        styles: Backend -> style.
        frame: Title, notes and footer.
    """
    rows = [_row(category) for category in categories]
    figure = new_figure(frame, ROW_IN * len(rows) + 0.75)
    axes = figure.subplots()
    draw_dots(axes, rows, styles, include=(_WHOLE,), is_log=False)
    axes.axvline(_WHOLE, color=INK, linewidth=1.0, zorder=1)
    axes.set_xlabel("share of the roofline, %")
    shown = {dot.backend for row in rows for dot in row.dots}
    legend_above(axes, styles, {name: name for name in styles if name in shown})
    return figure


def _row(category: Category) -> DotRow:
    measured = ok_rows(category.rows).dropna(subset=["roofline_share"])
    dots = tuple(_dot(row) for _, row in measured.iterrows())
    return DotRow(label=category.label, section=category.section, dots=dots)


def _dot(row: pd.Series) -> Dot:
    """The least time is computed, only the device time has an interval."""
    share = _WHOLE * float(row["roofline_share"])
    has_interval = row[[TIME_LOW, TIME_HIGH]].notna().all()
    return Dot(
        backend=str(row["backend"]),
        value=share,
        low=share * row[TIME] / row[TIME_HIGH] if has_interval else None,
        high=share * row[TIME] / row[TIME_LOW] if has_interval else None,
    )
