"""What an operator or engine says of one of its axes, so that a scenario can be checked early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Scalar = str | int | float | bool
"""A value on an axis, as stored: numbers are plain, sizes like `128k` already resolved."""

Params = Mapping[str, Scalar]
"""Axis name -> value for one point, defaults filled in."""


@dataclass(frozen=True, kw_only=True)
class AxisSpec:
    """One axis: its type, its default and what its values mean.

    Attributes:
        type: `int`, `float`, `bool`, `str` or `lengths` (an int, or `1300+547` / `8x1024`: the
            lengths of the sequences in a batch, kept as a canonical string).
        doc: One line for `benchx list ops`.
        default: Value when a scenario names none; None means the scenario must name it.
        choices: The only values allowed, if the set is closed.
        minimum: Smallest value allowed (numbers; for lengths, of each length).
    """

    type: str
    doc: str
    default: Scalar | None = None
    choices: tuple[Scalar, ...] = ()
    minimum: float | None = None


def parse_lengths(text: str | int) -> tuple[int, ...]:
    """Sequence lengths of a batch: `8192` is one, `1300+547` are two, `8x1024` are eight equal.

    Raises:
        ValueError: When the text is not a sum of whole numbers or `count x length` terms.
    """
    lengths: list[int] = []
    for term in str(text).replace(" ", "").split("+"):
        count, cross, length = term.partition("x")
        if not cross:
            count, length = "1", count
        if not (count.isdecimal() and length.isdecimal()):
            raise ValueError(f"{text!r} is not a list of lengths such as 8192, 1300+547 or 8x1024")
        lengths += [int(length)] * int(count)
    return tuple(lengths)


def format_lengths(lengths: tuple[int, ...]) -> str:
    """The canonical text of `parse_lengths`'s result (`8x1024` when all are equal)."""
    if len(lengths) > 1 and len(set(lengths)) == 1:
        return f"{len(lengths)}x{lengths[0]}"
    return "+".join(map(str, lengths))
