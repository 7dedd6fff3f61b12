"""Which part of a model its figures are of: a slice of the layers, reduced widths."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchx.reporting.frame import words_of

_SLICE = re.compile(r"slice_(\d+)_of_(\d+)_layers")
_REDUCED = re.compile(r"widths_divided_by_(\d+)")


def part_words(notes: Iterable[Iterable[str] | None]) -> str:
    """`4 of 27 layers, widths divided by 8`; empty for whole models and for kernels.

    Args:
        notes: The notes of each row, as the frame's column holds them. What holds for some of the
            rows only is followed by how many.
    """
    rows = [words_of(cell) for cell in notes]
    said: dict[str, int] = {}
    for row in rows:
        for text in filter(None, map(_part, row)):
            said[text] = said.get(text, 0) + 1
    return ", ".join(
        text if count == len(rows) else f"{text} ({count} of {len(rows)} points)"
        for text, count in said.items()
    )


def part_note(notes: Iterable[Iterable[str] | None]) -> tuple[str, ...]:
    """The line under a figure; none for whole models and for kernels."""
    words = part_words(notes)
    return (f"Not the whole model: {words}; times are not scaled up.",) if words else ()


def _part(note: str) -> str:
    if found := _SLICE.fullmatch(note):
        return f"{found[1]} of {found[2]} layers"
    if found := _REDUCED.fullmatch(note):
        return f"widths divided by {found[1]}"
    return ""
