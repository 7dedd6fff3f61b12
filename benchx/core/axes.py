"""What an operator or engine says of one of its axes, so that a scenario can be checked early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from benchx.core.units import UnitError, parse_count

Scalar = str | int | float | bool
"""A value on an axis, as stored: numbers are plain, sizes like `128k` already resolved."""

Params = Mapping[str, Scalar]
"""Axis name -> value for one point, defaults filled in."""

LENGTHS_EXPECTED = "lengths of sequences such as 8192, 128k, 1300+547 or 8x1024"

MAX_SEQUENCES = 2**20
"""More sequences in one batch are refused: `999999999x1` must not exhaust memory."""


@dataclass(frozen=True, kw_only=True)
class AxisSpec:
    """One axis: its type, its default and what its values mean.

    Attributes:
        type: `int`, `float`, `bool`, `str`, `bytes` (an int, also written `16KiB` or `2GB`) or
            `lengths` (an int, or `1300+547` / `8x1024`: the lengths of the sequences in a batch,
            kept as a canonical string).
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

    Lengths and counts may carry binary letters (`8x16k`), see `core.units`.

    Raises:
        UnitError: When the text is not a sum of whole numbers or `count x length` terms, or
            names more than 2^20 sequences.
    """
    lengths: list[int] = []
    for term in str(text).replace(" ", "").split("+"):
        count, cross, length = term.partition("x")
        if not cross:
            count, length = "1", count
        try:
            copies, tokens = parse_count(count), parse_count(length)
        except UnitError as error:
            raise UnitError(text, LENGTHS_EXPECTED) from error
        if not 1 <= copies <= MAX_SEQUENCES - len(lengths):
            raise UnitError(text, f"from 1 to {MAX_SEQUENCES} sequences")
        lengths += [tokens] * copies
    return tuple(lengths)


def format_lengths(lengths: tuple[int, ...]) -> str:
    """The canonical text of `parse_lengths`'s result: runs of equal lengths become `8x1024`."""
    runs = [(length, len(list(run))) for length, run in groupby(lengths)]
    return "+".join(f"{count}x{length}" if count > 1 else f"{length}" for length, count in runs)
