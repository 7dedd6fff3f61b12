"""Prefill and decode times of a model's own layers against one kind of attention in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.core.units import format_count
from benchx.reporting.chart_canvas import (
    Frame,
    check_chart_file,
    legend_height_in,
    new_figure,
    shared_legend,
    themed,
    write_chart,
)
from benchx.reporting.chart_scales import label_log_axis
from benchx.reporting.model_part import part_note
from benchx.reporting.theme import EDGE, EDGE_WIDTH, Style, styles_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT_IN = 2.6
_X = {"prefill": "prompt, tokens", "decode": "context, tokens"}
Curves = Sequence[Mapping[str, Any]]
"""Each with `phase`, `batch`, `pattern` and `times_ms` (length -> milliseconds)."""


def draw_versus(
    curves: Curves, rows: Sequence[Mapping[str, Any]], path: Path, *, about: str, source: str
) -> Path:
    """Write the chart, a panel per phase and batch; returns its path.

    Args:
        curves: What is drawn.
        rows: The points behind it: their notes and launches are told under the drawing.
        path: Ends in .png or .svg; its folder is there.
        about: What was measured.
        source: Run id, device, versions, date.

    Raises:
        UsageError: Another ending or folder.
    """
    check_chart_file(path)
    panels = list(dict.fromkeys((curve["phase"], curve["batch"]) for curve in curves))
    styles = styles_for(curve["pattern"] for curve in curves)
    frame = Frame(
        title="From which length on do the model's own layers beat one kind of attention?",
        notes=(
            f"{about}. own: layers as published; all_mla, all_kda: that attention in every layer.",
            _launches(rows),
            *part_note(row["notes"] for row in rows),
        ),
        source=source,
    )
    labels = {name: name for name in styles}
    with themed():
        figure = new_figure(frame, _HEIGHT_IN, above_in=legend_height_in(labels))
        shared_legend(figure, styles, labels)
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (phase, batch) in zip(row, panels, strict=True):
            chosen = [c for c in curves if (c["phase"], c["batch"]) == (phase, batch)]
            _panel(axes, chosen, styles)
            axes.set_title(f"{phase}, batch {batch}")
            axes.set_xlabel(_X[phase])
        row[0].set_ylabel("ms")
        return write_chart(figure, path, frame.title)


def _launches(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many passes a point is the median of; no interval is drawn here."""
    counts = sorted({int(row["launches"]) for row in rows})
    if counts == [1]:
        return "One launch, so no intervals: a small difference may be noise."
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Points: medians over {span} launches, without their intervals."


def _panel(axes: Axes, curves: Curves, styles: Mapping[str, Style]) -> None:
    from matplotlib.ticker import NullLocator

    for curve in curves:
        style = styles[curve["pattern"]]
        axes.plot(
            list(curve["times_ms"]), list(curve["times_ms"].values()), color=style.colour,
            linestyle=style.dashes, marker=style.marker, markeredgecolor=EDGE,
            markeredgewidth=EDGE_WIDTH,
        )  # fmt: skip
    lengths = sorted({length for curve in curves for length in curve["times_ms"]})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [format_count(length) for length in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    label_log_axis(axes.yaxis)
