"""Roofline: attained rate over arithmetic intensity, under the measured ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchx.reporting.chart_canvas import Frame, legend_above, new_figure
from benchx.reporting.chart_scales import label_log_axis
from benchx.reporting.frame import ok_rows
from benchx.reporting.numbers import digits, flop_rate
from benchx.reporting.theme import EDGE, EDGE_WIDTH, FAINT, INK, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchx.reporting.header import CeilingRates

_HEIGHT_IN = 3.5
_MARGIN = 3.0
_NAME_SHARE = 0.17
"""Of the width of the axes: what the name of the copy bandwidth takes."""

_LARGEST_PT = 6.5
_SMALLEST_PT = 3.5
"""Markers of several backends: equal inputs have equal intensity, so they meet. The large ones are
drawn first and all are hollow, so that each stays visible where its figures put it."""

_HOLLOW_EDGE = 1.1


@dataclass(frozen=True, kw_only=True)
class _Roof:
    """The ceilings in the unit of the chart's y axis."""

    unit: str
    per_tflop_s: float
    flat: float
    slope: float  # unit per FLOP/byte

    @property
    def ridge(self) -> float:
        """Intensity where the two ceilings meet, FLOP/byte."""
        return self.flat / self.slope


def _roof(ceilings: CeilingRates) -> _Roof:
    unit, factor = ("GFLOP/s", 1e3) if ceilings.matmul_tflop_s < 1 else ("TFLOP/s", 1.0)
    slope = ceilings.copy_gb_s * 1e9 / 1e12 * factor
    return _Roof(unit=unit, per_tflop_s=factor, flat=ceilings.matmul_tflop_s * factor, slope=slope)


def roofline_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Ok rows with `intensity` (FLOP per byte of minimum traffic) and `rate` (TFLOP/s)."""
    rows = ok_rows(frame)
    rows = rows[(rows["compute_tflop_s"] > 0) & (rows["bandwidth_gb_s"] > 0)]
    intensity = rows["compute_tflop_s"] * 1e12 / (rows["bandwidth_gb_s"] * 1e9)
    return rows.assign(intensity=intensity, rate=rows["compute_tflop_s"])


def roofline(
    points: pd.DataFrame,
    ceilings: CeilingRates,
    *,
    styles: Mapping[str, Style],
    frame: Frame,
) -> Figure:
    """Points per backend under min(copy bandwidth x intensity, matrix rate).

    Args:
        points: Result of `roofline_points`, not empty.
        ceilings: Copy bandwidth (GB/s) and matrix rate (TFLOP/s) measured on the same device.
        styles: Backend -> style.
        frame: Title, notes and footer.
    """
    figure = new_figure(frame, _HEIGHT_IN)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    roof = _roof(ceilings)
    points = points.assign(rate=points["rate"] * roof.per_tflop_s)
    _draw_roof(axes, points, roof)
    _name_roof(axes, roof, ceilings)
    shown = [name for name in styles if name in set(points["backend"])]
    for name, looks in zip(shown, _looks([styles[name] for name in shown]), strict=True):
        rows = points[points["backend"] == name]
        axes.plot(rows["intensity"], rows["rate"], linestyle="none", **looks)
    label_log_axis(axes.xaxis)
    label_log_axis(axes.yaxis)
    axes.set_xlabel("arithmetic intensity, FLOP per byte of minimum traffic")
    axes.set_ylabel(f"attained rate, {roof.unit}")
    legend_above(axes, styles, {name: name for name in shown})
    return figure


def _looks(styles: Sequence[Style]) -> list[dict[str, Any]]:
    """How each backend's points are drawn: a lone one filled, several hollow in falling sizes."""
    if len(styles) == 1:
        edge = {"markeredgecolor": EDGE, "markeredgewidth": EDGE_WIDTH}
        return [{"marker": styles[0].marker, "color": styles[0].colour, **edge}]
    step = (_LARGEST_PT - _SMALLEST_PT) / (len(styles) - 1)
    return [
        {
            "marker": style.marker,
            "markersize": _LARGEST_PT - step * place,
            "markerfacecolor": "none",
            "markeredgecolor": style.colour,
            "markeredgewidth": _HOLLOW_EDGE,
        }
        for place, style in enumerate(styles)
    ]


def _draw_roof(axes: Axes, points: pd.DataFrame, roof: _Roof) -> None:
    left = min(float(points["intensity"].min()), roof.ridge) / _MARGIN
    right = max(float(points["intensity"].max()), roof.ridge) * _MARGIN
    bottom = min(float(points["rate"].min()), roof.slope * left)
    top = max(float(points["rate"].max()), roof.flat)
    axes.plot([left, roof.ridge, right], [roof.slope * left, roof.flat, roof.flat], color=INK)
    axes.plot(  # up to the roof, above which its names stand
        [roof.ridge, roof.ridge], [bottom / 2, roof.flat], color=FAINT, linewidth=0.6,
        linestyle=(0, (2, 2)),
    )  # fmt: skip
    axes.set_xlim(left, right)
    axes.set_ylim(bottom / 2, top * 2.2)


def _name_roof(axes: Axes, roof: _Roof, ceilings: CeilingRates) -> None:
    left, right = axes.get_xlim()
    axes.annotate(
        f"{ceilings.matmul_dtype} matrix product {flop_rate(ceilings.matmul_tflop_s)}",
        (right, roof.flat), xytext=(-2, 4), textcoords="offset points", ha="right",
        fontsize=7.5, color=INK,
    )  # fmt: skip
    # Above the roof, where points do not lie; level with the other name where the slope is short.
    text = f"copy {digits(ceilings.copy_gb_s, 3)} GB/s"
    middle = (left * roof.ridge) ** 0.5
    if (middle / left) < (right / left) ** _NAME_SHARE:
        place, offset, ha = (left, roof.flat), (4, 4), "left"
    else:
        place, offset, ha = (middle, roof.slope * middle), (-4, 3), "right"
    axes.annotate(
        text, place, xytext=offset, textcoords="offset points", ha=ha, fontsize=7.5, color=INK,
    )  # fmt: skip
