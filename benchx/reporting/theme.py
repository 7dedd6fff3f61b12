"""How every figure looks: palette, one style per backend, sizes, rc settings.

Colours are those of Okabe and Ito (2008), told apart under the common forms of colour blindness;
yellow is left out, being too faint on white. Each backend also has its own marker and line style,
so nothing depends on colour and a grey print stays readable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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


_NUMBERS: Mapping[str, int] = {
    "triton": 0, "fla": 1, "flashkda": 2, "cudnn": 3, "chunked": 4, "recurrent": 5,
    "flashmla": 22, "flashinfer": 9, "absorbed": 10, "expanded": 31, "sdpa": 11,
    "own": 0, "all_mla": 1, "all_kda": 2,
    "vllm": 0, "sglang": 1, "trtllm": 2, "transformers": 3, "llamacpp": 4, "endpoint": 5,
}  # fmt: skip
"""Name -> number of its style: backends, patterns of a model, engines.

Numbers below 35 differ in colour or line style. Backends of one operator differ
in colour and in marker, where they may stand in one figure.
"""


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one backend is drawn, in every figure of a report."""

    colour: str
    marker: str
    dashes: Any


def styles_for(names: Iterable[str]) -> dict[str, Style]:
    """One style per name, in the order given.

    A name of `_NUMBERS` looks the same in every report, and so does a model's backend (`a+b`) by
    its first part where that is not taken. Others get what differs most from those beside them:
    another colour and another marker as far as there are any. The first 35 styles differ in colour
    or line style.
    """
    listed = list(dict.fromkeys(names))
    taken: dict[str, int] = {name: _NUMBERS[name] for name in listed if name in _NUMBERS}
    for name in listed:
        if name not in taken:
            own = _NUMBERS.get(name.partition("+")[0])
            is_free = own is not None and own not in taken.values()
            taken[name] = own if own is not None and is_free else _free(taken.values())
    return {name: _style(taken[name]) for name in listed}


def _free(taken: Collection[int]) -> int:
    """The first number in a colour and with a marker that none has, else the first that none has.

    With 35 styles in use, one of them stands for two names.
    """
    colours = {number % len(PALETTE) for number in taken}
    markers = {number % len(_MARKERS) for number in taken}
    free = [number for number in range(len(taken) + 1) if number not in taken]
    apart = (
        number
        for number in range(len(PALETTE) * len(_DASHES))
        if number % len(PALETTE) not in colours and number % len(_MARKERS) not in markers
    )
    return next(apart, free[0])


def _style(number: int) -> Style:
    return Style(
        colour=PALETTE[number % len(PALETTE)],
        marker=_MARKERS[number % len(_MARKERS)],
        dashes=_DASHES[number % len(_DASHES)],
    )
