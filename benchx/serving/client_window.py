"""Some reads of a body as one piece of bytes of which every byte keeps its arrival."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

WINDOW_BYTES = 32 * 2**10
"""Enough for a hundred chunks, and little enough to be read within a millisecond."""

_BLANK_LINE = re.compile(rb"\n\r?\n")


class Window:
    """Reads that followed one another.

    Attributes:
        data: Their bytes.

    Args:
        stamps_ns: Arrival of each.
        pieces: Bytes of each, none of them empty.
    """

    def __init__(self, stamps_ns: Sequence[int], pieces: Sequence[bytes]) -> None:
        self.data = b"".join(pieces)
        self._stamps_ns = stamps_ns
        self._ends = list(accumulate(map(len, pieces)))

    def event_end(self, start: int) -> int:
        """Where the next blank line ends, if it is one of the usual kinds, else the whole ends."""
        found = _BLANK_LINE.search(self.data, start)
        return len(self.data) if found is None else found.end()

    def stamps_ns(self, ends: Sequence[int]) -> list[int]:
        """When what ends at each of these places, given in order, had arrived."""
        first = bisect_left(self._ends, ends[0])
        reads = zip(self._ends[first:], self._stamps_ns[first:], strict=True)
        read_end, stamp_ns = next(reads)
        stamps: list[int] = []
        for end in ends:
            while read_end < end:
                read_end, stamp_ns = next(reads)
            stamps.append(stamp_ns)
        return stamps

    def parts(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The bytes between two places as they arrived: arrival and bytes of each part."""
        read = bisect_right(self._ends, start)
        while start < end:
            stop = min(self._ends[read], end)
            yield self._stamps_ns[read], self.data[start:stop]
            start, read = stop, read + 1


def windows_of(stamps_ns: Sequence[int], pieces: Sequence[bytes]) -> Iterator[Window]:
    """A body in windows of `WINDOW_BYTES`, or of one read where that is longer."""
    first, full = 0, WINDOW_BYTES
    for place, end in enumerate(accumulate(map(len, pieces)), 1):
        if end >= full:
            yield Window(stamps_ns[first:place], pieces[first:place])
            first, full = place, end + WINDOW_BYTES
    if first < len(pieces):
        yield Window(stamps_ns[first:], pieces[first:])
