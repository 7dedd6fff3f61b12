"""Lengths of the sequences in a batch: their text and its canonical form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.axes import MAX_SEQUENCES, format_lengths, parse_lengths
from benchx.core.units import UnitError


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        (8192, (8192,)),
        ("128k", (131072,)),
        ("1300+547", (1300, 547)),
        ("3x16k", (16384, 16384, 16384)),
        ("2x4 + 1", (4, 4, 1)),
        ("0+17+0", (0, 17, 0)),
    ],
)
def test_lengths_are_sums_of_counts_times_lengths(
    text: str | int, lengths: tuple[int, ...]
) -> None:
    assert parse_lengths(text) == lengths


@pytest.mark.parametrize("text", ["", "8192+", "x4", "4x", "-1", "1.5", "0x16", "2x3x4", "many"])
def test_what_are_no_lengths_is_refused_with_the_whole_text(text: str) -> None:
    with pytest.raises(UnitError, match="expected") as caught:
        parse_lengths(text)
    assert caught.value.value == text


def test_more_sequences_than_memory_should_hold_are_refused() -> None:
    assert len(parse_lengths(f"{MAX_SEQUENCES}x1")) == MAX_SEQUENCES
    for text in ("999999999999x1", f"{MAX_SEQUENCES}x1+1"):
        with pytest.raises(UnitError, match="sequences"):
            parse_lengths(text)


def test_runs_of_equal_lengths_are_written_short() -> None:
    assert format_lengths((1024,) * 8) == "8x1024"
    assert format_lengths((4, 4, 1, 4)) == "2x4+1+4"


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=40))
def test_formatted_lengths_read_back(lengths: list[int]) -> None:
    assert parse_lengths(format_lengths(tuple(lengths))) == tuple(lengths)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_the_formatted_text_is_canonical(lengths: list[int]) -> None:
    written_out = "+".join(map(str, lengths))
    assert format_lengths(parse_lengths(written_out)) == format_lengths(tuple(lengths))
