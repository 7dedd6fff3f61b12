"""Chunks of one stream that differ in their text and in the counts of their `usage`.

Servers that are asked for usage in every chunk (`continuous_usage_stats`) tell in this way how
many tokens each holds. Only the small object is parsed then: what is around text and usage is equal
bytes in all chunks, as in `client_mould`, and the rest of that argument holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Any, Self

import orjson

from benchx.serving.client_fields import Payload, count_of
from benchx.serving.client_mould import NEEDLE_BYTES, OTHER, Mould, Run, only_text, text_of
from benchx.serving.client_window import WINDOW_BYTES

# Within a JSON string the quotes would be escaped, so this is never part of a text. Objects within
# the object may not hold further ones: a usage that does is none, or is cut, and fails to parse.
_OBJECT = rb"(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})"
_USAGES = {key: re.compile(key + _OBJECT) for key in (b'"usage":', b'"usage": ')}
"""By the key as servers write it; a plain beginning is what makes the search fast."""

_PROBE = {"completion_tokens": 7_654_321}


class UsageMould:
    """The bytes around the text and around the usage of a chunk.

    Attributes:
        is_reasoning: Whether the text is reasoning; else it is visible.

    Args:
        key: Of the usage, a name of `_USAGES`.
        head: Bytes of the event up to and including the quote that opens the text.
        middle: Bytes from the quote that closes it to the key of the usage.
        tail: Bytes from the end of the usage to the end of the blank line.
        expected: What a chunk with another text between them holds.
    """

    has_usage = True

    def __init__(
        self, key: bytes, head: bytes, middle: bytes, tail: bytes, expected: Payload
    ) -> None:
        self.is_reasoning, self._expected = bool(expected.reasoning), expected
        self._key, self._usage = key, _USAGES[key]
        self._middle, self._tail, self._needle = middle, tail, head[-NEEDLE_BYTES:]
        self._opening = tail + head
        self._needle_at = max(len(head) - NEEDLE_BYTES, 0)
        self._lf_bytes = int(tail.endswith(b"\r\n"))

    @classmethod
    def of(cls, event: bytes) -> Self | None:
        """The mould of an event that is one chunk with one plain piece of text and a usage.

        Args:
            event: All its bytes, which a reader has read without a fault.
        """
        splits = ((key, usage.split(event)) for key, usage in _USAGES.items())
        key, parts = next(((key, parts) for key, parts in splits if len(parts) == 3), (b"", []))
        found = only_text(event)
        if found is None or not key:
            return None
        payload = found[0]
        text = (payload.visible or payload.reasoning).encode()
        place = parts[0].rfind(b'"%b"' % text) + 1
        head, middle, tail = parts[0][:place], parts[0][place + len(text) :], parts[2]
        expected = Payload(visible=OTHER) if payload.visible else Payload(reasoning=OTHER)
        fits = place and _makes(expected, head, middle + key, tail)
        return cls(key, head, middle, tail, expected) if fits else None

    def run(self, data: bytes, start: int) -> Run | None:
        """The chunks of this mould that begin at a place; see `Mould.run`."""
        if not data.startswith(self._needle, start + self._needle_at):
            return None
        # The tail that is put before makes the first chunk one that follows another.
        parts = self._usage.split(self._tail + data[start : start + WINDOW_BYTES])
        if not parts[-1].startswith(self._tail):
            del parts[-2:]  # of the last chunk the end is still to come
        insides: list[bytes] = []
        for part in parts[:-1:2]:
            opening, middle = self._opening, self._middle
            if part.startswith(opening) and part.endswith(middle):
                inside: bytes | None = part[len(opening) : -len(middle)]
            else:
                inside = self._inside(part)
            if not inside:
                break
            insides.append(inside)
        usages = _usages_of(parts[1 : 2 * len(insides) : 2])
        return self._run_of(insides[: len(usages)], usages, parts, start)

    def _inside(self, part: bytes) -> bytes | None:
        """What stands between the quotes where an id or a time has changed; None if more has."""
        needle, tail, middle = self._needle, self._tail, self._middle
        end = part.find(needle, len(tail)) + len(needle)
        if end < len(needle) or not part.startswith(tail) or not part.endswith(middle, end):
            return None
        if not _makes(self._expected, part[len(tail) : end], middle + self._key, tail):
            return None
        self._opening = part[:end]
        return part[end : -len(middle)]

    def _run_of(
        self,
        insides: Sequence[bytes],
        usages: Sequence[Mapping[str, Any]],
        parts: Sequence[bytes],
        start: int,
    ) -> Run | None:
        text = text_of(insides)
        if text is None:
            insides = list(takewhile(lambda inside: text_of([inside]), insides))
            text = text_of(insides)
        if not text:
            return None
        count, key = len(insides), len(self._key)
        pairs = zip(parts[: 2 * count : 2], parts[1 : 2 * count : 2], strict=True)
        sizes = [len(part) + key + len(usage) for part, usage in pairs]
        complete = list(accumulate(sizes, initial=start - self._lf_bytes))[1:]
        totals = [usage["completion_tokens"] for usage in usages[:count]]
        return Run(text, complete, complete[-1] + self._lf_bytes, totals, usages[count - 1])


def mould_of(event: bytes) -> Mould | UsageMould | None:
    """The mould of an event, of either kind."""
    return Mould.of(event) or UsageMould.of(event)


def _usages_of(texts: Sequence[bytes]) -> Sequence[Mapping[str, Any]]:
    """The objects, up to the first that is none or does not count the tokens generated.

    Parsed as one array: no JSON string holds a line break, so each begins and ends where it should.
    """
    found: list[Any] = []
    try:
        found = orjson.loads(b"[%b]" % b",\n".join(texts))
    except orjson.JSONDecodeError:
        if len(texts) > 1:
            half = len(texts) // 2
            first = _usages_of(texts[:half])
            return [*first, *_usages_of(texts[half:])] if len(first) == half else first
    if len(found) != len(texts):
        return []
    return list(takewhile(lambda one: count_of(one.get("completion_tokens")) is not None, found))


@lru_cache(maxsize=256)
def _makes(expected: Payload, head: bytes, middle: bytes, tail: bytes) -> bool:
    """Whether any text and any usage between these bytes are those of a chunk with nothing else.

    Others are put there and must come out. As there are no escapes, they can't have been in the
    chunk before, unseen.
    """
    around = head + middle + tail
    probe = orjson.dumps(_PROBE)
    if OTHER.encode() in around or b"\\" in around or b"completion_tokens" in around:
        return False
    return only_text(head + OTHER.encode() + middle + probe + tail) == (expected, _PROBE)
