"""KV throughput against context, and the tiers that are faster than computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchx import __version__
from benchx.core.errors import UsageError
from benchx.core.units import format_count
from benchx.reporting.chart_canvas import (
    EndLabel,
    Frame,
    check_chart_file,
    label_ends,
    new_figure,
    themed,
    write_chart,
)
from benchx.reporting.chart_scales import label_log_axis
from benchx.reporting.theme import EDGE, EDGE_WIDTH, FAINT, styles_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchx.architectures.kv_report import KvReport

_HEIGHT_IN = 3.0
_POINTS = 60
"""Of the curve, evenly on the logarithm of the context."""


def draw_kv(
    report: KvReport,
    seconds: Mapping[int, float],
    path: Path,
    *,
    sources: Sequence[str],
    part: str = "",
) -> Path:
    """Write the chart; returns its path.

    Args:
        report: What is drawn; needs a prefill time.
        seconds: Measured prefills, drawn as points: tokens -> seconds.
        path: Ends in .png or .svg; its folder is there.
        sources: Of the measured runs behind it (run id, device, versions, date); may be none.
        part: What was measured of the model (`4 of 27 layers`); empty for all of it.

    Raises:
        UsageError: Another ending or folder, or no prefill time to draw.
    """
    check_chart_file(path)
    if report.prefill is None or len(report.contexts) < 2:
        raise UsageError(
            "a chart needs prefill times of two contexts",
            hint="name a machine (--hardware) or a run (--run)",
        )
    with themed():
        frame = _frame(report, sources, part, is_measured=bool(seconds))
        figure = new_figure(frame, _HEIGHT_IN)
        axes = figure.add_subplot()
        labels = [_curve(axes, report, seconds), *_tiers(axes, report)]
        _scales(axes, report)
        label_ends(axes, labels, height_in=_HEIGHT_IN * 0.8)
        return write_chart(figure, path, frame.title)


def _frame(report: KvReport, sources: Sequence[str], part: str, *, is_measured: bool) -> Frame:
    assert report.prefill is not None
    starts = [row.loading_wins_from for row in report.tiers]
    has_dots = any(first is not None and _is_shown(first, report) for first in starts)
    dots = " Black dots: from there on." if has_dots else ""
    points = "; points: measured" if is_measured else ""
    cut = f"Not the whole model: {part}; bytes and times are those of the part."
    return Frame(
        title=f"{report.arch.title}: from which tier is loading a prefix faster than computing it?",
        notes=(
            "A tier above the curve loads a prefix of that length faster than it is computed."
            + dots,
            f"Curve: bytes left behind / prefill time; prefill: {report.prefill.source}{points}.",
            *([cut] if part else []),
            f"Cache {report.form.cache_dtype}, state {report.form.state_dtype}; tiers: "
            + "; ".join(dict.fromkeys(row.tier.source for row in report.tiers))
            + ".",
            f"Architecture: {'; '.join(report.arch.sources)}.",
            *sources[:-1],
        ),
        source=sources[-1] if sources else f"no measurement: catalogue of benchx {__version__}",
    )


def _curve(axes: Axes, report: KvReport, seconds: Mapping[int, float]) -> EndLabel:
    """The curve, and the measured points on it."""
    assert report.prefill is not None
    style = styles_for(["prefill"])["prefill"]
    first, last = report.contexts[0].context, report.contexts[-1].context
    steps = [first * (last / first) ** (i / (_POINTS - 1)) for i in range(_POINTS)]
    rates = [_rate(report, round(step), report.prefill.seconds(round(step))) for step in steps]
    axes.plot(steps, rates, color=style.colour, zorder=3)
    tokens = [length for length in seconds if first <= length <= last] or [
        row.context for row in report.contexts
    ]
    heights = [
        _rate(report, length, seconds.get(length, report.prefill.seconds(length)))
        for length in tokens
    ]
    axes.plot(
        tokens, heights, linestyle="none", marker=style.marker, color=style.colour,
        markeredgecolor=EDGE, markeredgewidth=EDGE_WIDTH, zorder=4, clip_on=False,
    )  # fmt: skip
    return EndLabel("KV throughput", last, rates[-1], style.colour)


def _rate(report: KvReport, tokens: int, seconds: float) -> float:
    return (tokens * report.per_token_bytes + report.state_bytes) / seconds / 1e9


def _tiers(axes: Axes, report: KvReport) -> list[EndLabel]:
    last = report.contexts[-1].context
    labels = []
    for row in report.tiers:
        height = row.tier.bandwidth_gb_s
        axes.axhline(height, color=FAINT, linewidth=0.9, linestyle=(0, (4, 2)), zorder=2)
        first = row.loading_wins_from
        if first is not None and _is_shown(first, report):
            axes.plot([first], [height], "o", color=EDGE, markersize=4, zorder=5)
        labels.append(EndLabel(f"{row.tier.name} {height:.3g}", last, height, FAINT))
    return labels


def _is_shown(tokens: int, report: KvReport) -> bool:
    """Whether the length lies within the chart."""
    return report.contexts[0].context <= tokens <= report.contexts[-1].context


def _scales(axes: Axes, report: KvReport) -> None:
    from matplotlib.ticker import NullLocator

    contexts = [row.context for row in report.contexts]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(contexts, [format_count(context) for context in contexts])
    axes.xaxis.set_minor_locator(NullLocator())
    label_log_axis(axes.yaxis)
    axes.set_xlim(contexts[0], contexts[-1])
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("GB/s")
