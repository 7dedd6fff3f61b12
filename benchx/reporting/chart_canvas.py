"""The parts that all figures share: canvas, title, footer, direct labels, writing to files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.core.errors import UsageError
from benchx.reporting.theme import COLUMN_WIDTH_IN, EDGE, EDGE_WIDTH, FAINT, INK, PNG_DPI, RC, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_FOOTER_POINTS = 6.2
_FOOTER_LINE_IN = 0.115
_FOOTER_COLUMNS = 155
_TITLE_IN = 0.30
_LEGEND_CHARACTERS = 95
_LEGEND_MARKER = 4
_LEGEND_LINE_IN = 0.16
_LEGEND: Mapping[str, Any] = {"frameon": False, "handletextpad": 0.2, "columnspacing": 1.4}
_LABEL_LINE_IN = 0.13
_LABEL_POINTS = 7.5
_NEAR_EDGE = 0.7
_NEAR_TOP = 0.85


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What stands around the drawing.

    Attributes:
        title: The question, neutrally.
        notes: Lines under the drawing that explain it (what is not shown, what a mark means).
        source: Run id, device, versions, date: on every figure.
    """

    title: str
    notes: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class EndLabel:
    """A name to be written at the right end of a line that ends at height `y` (data units)."""

    name: str
    x: float
    y: float
    colour: str


def new_figure(frame: Frame, drawing_height_in: float, *, above_in: float = 0.0) -> Figure:
    """An empty figure of page-column width with title and footer; call inside `themed()`.

    Args:
        frame: Title and footer.
        drawing_height_in: Height of everything between them.
        above_in: Kept free between title and drawing, see `shared_legend`.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    lines = [line for text in (*frame.notes, frame.source) for line in _wrapped(text)]
    footer_in = _FOOTER_LINE_IN * len(lines) + 0.08
    height_in = drawing_height_in + footer_in + above_in + _TITLE_IN
    drawing = (0.012, footer_in / height_in, 0.976, drawing_height_in / height_in)
    engine = ConstrainedLayoutEngine(rect=drawing)
    figure = Figure(figsize=(COLUMN_WIDTH_IN, height_in), layout=engine, dpi=PNG_DPI)
    figure.text(
        0.012, 1 - 0.10 / height_in, frame.title, ha="left", va="top",
        fontsize=10, fontweight="bold", color=INK,
    )  # fmt: skip
    figure.text(
        0.012, 0.04 / height_in, "\n".join(lines), ha="left", va="bottom",
        fontsize=_FOOTER_POINTS, color=FAINT, linespacing=1.25,
    )  # fmt: skip
    return figure


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _FOOTER_COLUMNS) or [""]


def legend_above(axes: Axes, styles: Mapping[str, Style], labels: Mapping[str, str]) -> None:
    """Backend -> label in rows right above the drawing, marked as the points are."""
    axes.legend(
        handles=_handles(styles, labels), loc="lower left", bbox_to_anchor=(0, 1.0),
        ncols=_legend_columns(labels), borderaxespad=0.2, **_LEGEND,
    )  # fmt: skip


def legend_height_in(labels: Mapping[str, str]) -> float:
    """Room that `shared_legend` needs, inches; 0 for a single label, which needs no legend."""
    if len(labels) < 2:
        return 0.0
    return 0.05 + _LEGEND_LINE_IN * math.ceil(len(labels) / _legend_columns(labels))


def shared_legend(figure: Figure, styles: Mapping[str, Style], labels: Mapping[str, str]) -> None:
    """One legend for all panels, between title and drawing; nothing for a single label."""
    if len(labels) > 1:
        top = 1 - (_TITLE_IN - 0.02) / figure.get_figheight()
        figure.legend(
            handles=_handles(styles, labels), loc="upper left", bbox_to_anchor=(0.008, top),
            ncols=_legend_columns(labels), borderaxespad=0.0, **_LEGEND,
        )  # fmt: skip


def _handles(styles: Mapping[str, Style], labels: Mapping[str, str]) -> list[Line2D]:
    from matplotlib.lines import Line2D

    return [
        Line2D(
            [], [], color=styles[name].colour, marker=styles[name].marker, linestyle="none",
            markeredgecolor=EDGE, markeredgewidth=EDGE_WIDTH, label=label,
        )
        for name, label in labels.items()
    ]  # fmt: skip


def _legend_columns(labels: Mapping[str, str]) -> int:
    widest = max(map(len, labels.values()))
    return min(len(labels), max(1, _LEGEND_CHARACTERS // (widest + _LEGEND_MARKER)))


def label_ends(axes: Axes, labels: Sequence[EndLabel], *, height_in: float) -> None:
    """Write names beside the ends of lines, moved apart where they would overlap.

    A line that ends well before the right edge is named at its end, inside the drawing.

    Args:
        axes: Limits must be final.
        labels: One per line.
        height_in: Height of the axes, inches (approximate).
    """
    ends = [(label, *_fraction(axes, label)) for label in labels]
    outside = [end for end in ends if end[1] >= _NEAR_EDGE]
    heights = _spread([height for _, _, height in outside], _LABEL_LINE_IN / height_in)
    for (label, x, y), height in zip(outside, heights, strict=True):
        axes.annotate(
            label.name, xy=(x, y), xytext=(1.025, height), xycoords="axes fraction",
            textcoords="axes fraction", va="center", ha="left", fontsize=_LABEL_POINTS, color=INK,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": label.colour, "lw": 0.6, "shrinkA": 1, "shrinkB": 3,
            },
        )  # fmt: skip
    for label, x, y in (end for end in ends if end[1] < _NEAR_EDGE):
        axes.annotate(
            label.name, xy=(x, y), xytext=(6, -3 if y > _NEAR_TOP else 3),
            xycoords="axes fraction", textcoords="offset points", ha="left",
            va="top" if y > _NEAR_TOP else "bottom", fontsize=_LABEL_POINTS, color=INK,
        )  # fmt: skip


def _fraction(axes: Axes, label: EndLabel) -> tuple[float, float]:
    x, y = axes.transLimits.transform(axes.transScale.transform((label.x, label.y)))
    return float(x), float(y)


def _spread(wanted: Sequence[float], step: float) -> list[float]:
    """Heights near the wanted ones, at least `step` apart, none above 1."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    heights = [0.0] * len(wanted)
    below = -step
    for index in order:
        heights[index] = below = max(wanted[index], below + step)
    above = 1.0 + step
    for index in reversed(order):
        heights[index] = above = min(heights[index], above - step)
    return heights


def write_figure(figure: Figure, stem: Path, description: str) -> tuple[Path, Path]:
    """Write `stem`.png (200 dpi) and `stem`.svg (equal bytes for equal content).

    Args:
        figure: Drawn inside `themed()`; call this inside it as well.
        stem: Path without a suffix.
        description: One sentence for readers who can't see the picture; kept in the SVG.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not once per file
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    return write_chart(figure, png, description), write_chart(figure, svg, description)


def check_chart_file(path: Path) -> None:
    """Refuse a file that no chart can be written to, before anything is computed for it.

    Raises:
        UsageError: It is a folder, its folder is not there, or it ends in neither .png nor .svg.
    """
    if path.is_dir():
        raise UsageError(f"can't draw {path}: it is a folder", hint=f"{path / 'chart.png'}")
    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"can't draw {path}; expected a name ending in .png or .svg")
    if not path.parent.is_dir():
        raise UsageError(f"can't draw {path}: there is no folder {path.parent}")


def write_chart(figure: Figure, path: Path, description: str) -> Path:
    """Write one file, .png or .svg by its name; returns its path. See `write_figure`."""
    if path.suffix == ".svg":
        metadata = {"Date": None, "Creator": "benchx", "Title": description}
        figure.savefig(path, format="svg", metadata=metadata)
    else:
        figure.savefig(path, dpi=PNG_DPI, metadata={"Software": "benchx"})
    return path


def themed() -> AbstractContextManager[None]:
    """A context manager under which figures are drawn and written."""
    import matplotlib as mpl

    settings: Any = dict(RC)  # its stub lists every known key as a literal
    return mpl.rc_context(settings)
