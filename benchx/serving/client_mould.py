"""Chunks of one stream that differ in their text only, read without parsing each as JSON.

Nearly all chunks of a stream are equal bytes around a few letters of text. Whatever begins and ends
with the bytes of an earlier chunk and holds the inside of one JSON string in between is the same
JSON with another string in the one place: every other field has the value that was looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Any, Self

import orjson

from benchx.serving.client_fields import Payload, payload_of, usage_in
from benchx.serving.client_window import WINDOW_BYTES

_BLANK = (b"\r\n\r\n", b"\n\n")

OTHER = "another text"
"""Put in the place of a chunk's text, to see that this is the place where it stands."""

_VISIBLE, _REASONING = Payload(visible=OTHER), Payload(reasoning=OTHER)

NEEDLE_BYTES = 24
"""Searched for between two texts; a search for all that is between them takes five times longer."""


@dataclass(frozen=True)
class Run:
    """Chunks of one mould, one right after the other.

    Attributes:
        text: Their texts, none of which is empty, joined.
        complete: Where each is complete: places in the bytes that were searched. A blank line is
            one with its CR, whether or not an LF follows.
        end: Where the last one ends, an LF included.
        totals: Tokens generated until the end of each, where their usage tells.
        usage: That of the last one.
    """

    text: str
    complete: Sequence[int]
    end: int
    totals: Sequence[int] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)


class Mould:
    """The bytes around the text of a chunk.

    Attributes:
        is_reasoning: Whether the text is reasoning; else it is visible.

    Args:
        head: Bytes of the event up to and including the quote that opens the text.
        tail: Bytes from the quote that closes it to the end of the blank line.
        expected: What a chunk with the other text between them holds.
    """

    has_usage = False

    def __init__(self, head: bytes, tail: bytes, expected: Payload) -> None:
        self.is_reasoning, self._expected = expected == _REASONING, expected
        self._tail, self._needle = tail, head[-NEEDLE_BYTES:]
        self._gap = tail + head[:-NEEDLE_BYTES]
        self._needle_at = max(len(head) - NEEDLE_BYTES, 0)
        self._lf_bytes = int(tail.endswith(b"\r\n"))

    @classmethod
    def of(cls, event: bytes) -> Self | None:
        """The mould of an event that is one chunk with one plain piece of text and nothing else.

        Args:
            event: All its bytes, which a reader has read without a fault.
        """
        found = only_text(event)
        if found is None or found[1] is not None:
            return None
        payload = found[0]
        text = (payload.visible or payload.reasoning).encode()
        place = event.rfind(b'"%b"' % text) + 1
        head, tail = event[:place], event[place + len(text) :]
        expected = _VISIBLE if payload.visible else _REASONING
        return cls(head, tail, expected) if place and _makes(expected, head, tail) else None

    def run(self, data: bytes, start: int) -> Run | None:
        """The chunks of this mould that begin at a place, up to the first that is none.

        It looks no further than a window, so that short runs in a long read cost no more.

        Args:
            data: Bytes of the stream.
            start: Where an event begins in them.
        """
        if not data.startswith(self._needle, start + self._needle_at):
            return None  # something else, such as the usage
        # The tail that is put before makes the first chunk one that follows another.
        ahead = data[start : start + WINDOW_BYTES]
        pieces = (self._tail + ahead).split(self._needle)
        gap, size = self._gap, len(self._gap)
        insides: list[bytes] = []
        for piece in pieces:
            if not piece.endswith(gap):
                gap = piece[-size:]
                if not self._is_gap(gap):
                    last, complete, _ = piece.partition(self._tail)
                    insides += [last] if complete else []
                    break
                self._gap = gap
            insides.append(piece[:-size])
        return self._run_of(insides[1:], start) if insides and not insides[0] else None

    def _is_gap(self, gap: bytes) -> bool:
        """Whether these bytes stand between a text and the needle before the text after it.

        An id or a time in the head may change from chunk to chunk.
        """
        head = gap[len(self._tail) :] + self._needle
        return gap.startswith(self._tail) and _makes(self._expected, head, self._tail)

    def _run_of(self, insides: Sequence[bytes], start: int) -> Run | None:
        text = text_of(insides)
        if text is None:
            insides = list(takewhile(lambda inside: text_of([inside]), insides))
            text = text_of(insides)
        if text is None:
            return None
        around = len(self._gap) + len(self._needle)
        sizes = [len(inside) + around for inside in insides]
        complete = list(accumulate(sizes, initial=start - self._lf_bytes))[1:]
        return Run(text, complete, complete[-1] + self._lf_bytes)


def text_of(insides: Sequence[bytes]) -> str | None:
    """The text of JSON strings, given what stands between their quotes; None if one is no string.

    An empty one counts as none. All are parsed as one array, which proves each of them if it yields
    as many strings: no JSON string holds a line break, so each quote before a comma and a line
    break closes a string, each inside begins and ends within one, and none yields fewer than one.
    """
    try:
        texts = orjson.loads(b'["%b"]' % b'",\n"'.join(insides))
        return "".join(texts) if len(texts) == len(insides) and all(texts) else None
    except (orjson.JSONDecodeError, TypeError):  # TypeError: something that is no string
        return None


@lru_cache(maxsize=256)
def _makes(expected: Payload, head: bytes, tail: bytes) -> bool:
    """Whether any text between these bytes is the text of a chunk that holds nothing else.

    Another text is put there and must come out. As there are no escapes, it can't have been in the
    chunk before, unseen.
    """
    around = head + tail
    if OTHER.encode() in around or b"\\" in around:
        return False
    return only_text(head + OTHER.encode() + tail) == (expected, None)


def only_text(event: bytes) -> tuple[Payload, Mapping[str, Any] | None] | None:
    """What an event holds, and its usage, if it is a chunk with text of one kind and nothing else.

    None for every other event.
    """
    begin = len(b"data:") if event.startswith(b"data:") else 0
    end = next((-len(blank) for blank in _BLANK if event.endswith(blank)), 0)
    data = event[begin:end]
    if not begin or not end or b"\n" in data or b"\r" in data:
        return None
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    if not isinstance(choices, list) or len(choices) != 1:
        return None
    choice = choices[0]
    if not isinstance(choice, dict) or any(
        (choice.get("finish_reason"), choice.get("error"), chunk.get("error"))
    ):
        return None
    payload = payload_of(choice)
    is_text = bool(payload.visible) != bool(payload.reasoning)
    if not is_text or payload.is_tool or payload.tokens:
        return None
    return payload, usage_in(chunk)
