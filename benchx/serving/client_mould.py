"""Chunks of one stream that differ in their text only, read without parsing JSON.

Nearly all chunks of a stream are equal bytes around a few letters of text. If a chunk begins and
ends with the bytes of an earlier one that was parsed, and what is in between holds neither a quote
nor a backslash nor a control character, then it is the same JSON with another string in the one
place: every other field has the value that was looked at before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from benchx.serving.client_fields import payload_of, usage_in

_KEYS = (b'"content":"', b'"text":"', b'"content": "', b'"text": "')


class Mould:
    """The bytes around the text of a chunk.

    Args:
        head: Bytes up to and including the quote that opens the text.
        tail: Bytes from the quote that closes it.
    """

    def __init__(self, head: bytes, tail: bytes) -> None:
        self._head, self._tail = b"data: " + head, tail + b"\n\n"
        self._between = self._tail + self._head
        self._least = len(self._head) + len(self._tail)

    @classmethod
    def of(cls, data: bytes, chunk: Mapping[str, Any]) -> Self | None:
        """The mould of a chunk that holds one plain piece of visible text and nothing else."""
        choices = chunk.get("choices")
        if not isinstance(choices, list) or len(choices) != 1 or usage_in(chunk) is not None:
            return None
        choice = choices[0]
        if not isinstance(choice, dict) or choice.get("finish_reason"):
            return None
        payload = payload_of(choice)
        if not payload.visible or payload.reasoning or payload.is_tool or payload.tokens:
            return None
        key = next((key for key in _KEYS if key in data), b"")
        before, found, after = data.partition(key) if key else (data, b"", b"")
        text = payload.visible.encode(errors="surrogatepass")
        # The key is the field itself and not the end of a string: an unescaped quote stands first.
        alone = key not in after and before[-1:] in (b"{", b",", b" ")
        if not found or not alone or not after.startswith(text + b'"'):
            return None
        return cls(before + found, after[len(text) :])

    def text_of(self, event: bytes) -> str | None:
        """The text of the data of one event of this mould; None for any other."""
        texts = self.texts_of(b"data: %b\n\n" % event)
        return texts[0] if texts is not None and len(texts) == 1 else None

    def texts_of(self, data: bytes) -> list[str] | None:
        """The texts of bytes that are chunks of this mould and nothing else; else None.

        What is not plain (an escape, a control character, no text) is left to the JSON parser.
        """
        if not (data.startswith(self._head) and data.endswith(self._tail)):
            return None
        inner = data[len(self._head) : -len(self._tail)]
        if len(data) <= self._least:
            return None
        pieces = inner.split(self._between)
        plain = b"".join(pieces)
        if b'"' in plain or b"\\" in plain or b"" in pieces:
            return None
        try:
            texts = [piece.decode() for piece in pieces]
        except UnicodeDecodeError:
            return None
        return texts if "".join(texts).isprintable() else None
