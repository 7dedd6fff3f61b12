"""How every figure looks: palette, one style per backend, sizes, rc settings.

Colours are those of Okabe and Ito (2008), told apart under the common forms of colour blindness;
yellow is left out, being too faint on white. Each backend also has its own marker and line style,
so nothing depends on colour and a grey print stays readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

COLUMN_WIDTH_IN = 7.0
"""Width of a page column; figures are this wide and as high as their content needs."""

PNG_DPI = 200

# Ordered so that the first ones differ most in lightness and contrast at least 3:1 with white.
PALETTE = ("#0072B2", "#D55E00", "#000000", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "<", "p", ">")
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (9, 2)),
)

INK = "#222222"
FAINT = "#6b6b6b"
GRID = "#dddddd"
EDGE = INK
"""Outline of every marker: it carries the pale colours on white and in grey."""

EDGE_WIDTH = 0.5

RC: Mapping[str, Any] = {
    "font.family": "sans-serif",  # DejaVu Sans here, the reader's own in an SVG without it
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "svg.fonttype": "none",  # text stays text: searchable, small, diffable
    "svg.hashsalt": "benchx",  # ids in the SVG depend on the content only
    "path.simplify": False,
}


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one backend is drawn, in every figure of a report."""

    colour: str
    marker: str
    dashes: Any


def styles_for(backends: Iterable[str]) -> dict[str, Style]:
    """One style per backend, in the order given (the order in which the scenario lists them).

    The first 35 styles differ in colour or line style, and the marker changes with each.
    """
    return {
        name: Style(
            colour=PALETTE[index % len(PALETTE)],
            marker=_MARKERS[index % len(_MARKERS)],
            dashes=_DASHES[index % len(_DASHES)],
        )
        for index, name in enumerate(dict.fromkeys(backends))
    }
