"""One load over time: requests in flight, output tokens per second, KV cache in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchx.reporting.chart_canvas import Frame, new_figure
from benchx.reporting.serving_timeline import Curve, Timeline
from benchx.reporting.theme import FAINT, GRID, INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STRIP_IN = 1.25
_BAND = "#efefef"
_FILL_ALPHA = 0.18


def timeline_strips(line: Timeline, frame: Frame) -> Figure:
    """Strips over one time axis; one for the KV cache only where the server told its use often.

    Args:
        line: At least one request was sent.
        frame: Title, notes and footer.
    """
    drawings = [_draw_in_flight, _draw_tokens] if line.tokens.times_s else [_draw_in_flight]
    if line.shows_kv_usage:
        drawings.append(_draw_kv)
    figure = new_figure(frame, _STRIP_IN * len(drawings) + 0.35)
    strips = figure.subplots(len(drawings), 1, sharex=True, squeeze=False)[:, 0]
    for axes, draw in zip(strips, drawings, strict=True):
        if line.steady_s is not None:
            axes.axvspan(*line.steady_s, color=_BAND, linewidth=0, zorder=0)
        draw(axes, line)
        axes.grid(axis="x", color=GRID)
    strips[0].set_xlim(0, 1.005 * line.end_s)
    strips[-1].set_xlabel("seconds after the first request")
    figure.align_ylabels(strips)
    return figure


def _draw_in_flight(axes: Axes, line: Timeline) -> None:
    curve = line.in_flight
    _steps(axes, curve, PALETTE[0], line.end_s, label="sent and not ended (client)")
    axes.set_ylabel("requests\nin flight")
    highest = max(curve.values)
    if any(line.waiting.values):
        waiting = line.waiting
        axes.plot(
            waiting.times_s, waiting.values, color=PALETTE[1], linestyle=(0, (4, 1.5)),
            label="waiting (server)",
        )  # fmt: skip
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2, frameon=False, fontsize=7,
            labelcolor=INK, borderaxespad=0.0,
        )  # fmt: skip
    if line.failed_s:
        axes.plot(
            line.failed_s, [0.5 * highest] * len(line.failed_s), linestyle="none", marker="x",
            color=INK, markersize=5, zorder=4,
        )  # fmt: skip
    _from_zero(axes, highest, whole=True)


def _draw_tokens(axes: Axes, line: Timeline) -> None:
    _steps(axes, line.tokens, PALETTE[3], line.end_s)
    axes.set_ylabel("output,\ntok/s")
    _from_zero(axes, max(line.tokens.values))


def _draw_kv(axes: Axes, line: Timeline) -> None:
    percent = [100 * value for value in line.kv_usage.values]
    axes.plot(line.kv_usage.times_s, percent, color=INK, marker=".", markersize=4)
    axes.set_ylabel("KV cache\nin use, %")
    _from_zero(axes, max(percent), most=100.0)


def _steps(axes: Axes, curve: Curve, colour: str, end_s: float, *, label: str = "") -> None:
    times, values = [*curve.times_s, end_s], [*curve.values, curve.values[-1]]
    axes.fill_between(times, values, step="post", color=colour, alpha=_FILL_ALPHA, linewidth=0)
    axes.step(times, values, where="post", color=colour, linewidth=1.1, label=label)


def _from_zero(
    axes: Axes, highest: float, *, whole: bool = False, most: float | None = None
) -> None:
    """From 0 to a little above the highest value, with four or five ticks."""
    from matplotlib.ticker import MaxNLocator

    top = 1.12 * highest if highest > 0 else 1.0
    axes.set_ylim(0, top if most is None else min(top, 1.02 * most))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=whole))
    axes.tick_params(colors=FAINT, labelcolor=INK)
