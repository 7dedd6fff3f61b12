"""Server-sent events, byte for byte: every legal stream, however its bytes are cut.

The rules are those of the WHATWG HTML standard, section 9.2.6 (interpreting an event stream), with
one addition: an event that the stream ends in the middle of, without its blank line, is delivered
by `close` instead of being dropped, because servers end streams that way.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_LINE_BYTES = 16 * 2**20
"""No server that means well sends a longer line or event."""

_BOM = b"\xef\xbb\xbf"


class SseError(ValueError):
    """The stream can't be read on; the message says why."""


class SseEvent(NamedTuple):
    """One event.

    Attributes:
        data: Its `data` lines joined by newlines, not decoded.
        name: Its `event` field; empty when it has none.
        last_id: The `id` field in force, which later events inherit.
    """

    data: bytes
    name: bytes = b""
    last_id: bytes = b""


# A fifth of the time of calling the class, and this is done once per token.
_new = tuple.__new__


class SseParser:
    """Turns bytes into events; an event is returned by the call that brings its last byte.

    Attributes:
        comments: Comment lines seen until now.

    Args:
        max_bytes: Longest line, and longest event, that is read.
    """

    def __init__(self, *, max_bytes: int = MAX_LINE_BYTES) -> None:
        self.comments = 0
        self._max_bytes = max_bytes
        self._head: bytes | None = b""  # first bytes, until it is clear whether they are a BOM
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._skip_newline = False
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = self._last_id = b""

    @property
    def is_between_events(self) -> bool:
        """Whether the next byte begins a new event, with nothing pending."""
        pending = self._partial or self._data or self._name or self._skip_newline
        return self._head is None and not pending

    def feed(self, data: bytes) -> list[SseEvent]:
        """Events that these bytes complete.

        Raises:
            SseError: A line or an event is longer than the limit.
        """
        if self._head is not None:
            data = self._without_bom(data)
        if not data:
            return []
        if self._skip_newline or b"\r" in data:
            data = self._with_newlines(data)
        if data.endswith(b"\n\n") and not (self._partial or self._data or self._name):
            return self._whole_events(data)
        *lines, rest = data.split(b"\n")
        if lines and self._partial:
            lines[0] = self._take_partial(lines[0])
        events: list[SseEvent] = []
        for line in lines:
            self._line(line, events)
        if rest:
            self._keep(rest)
        return events

    def _whole_events(self, data: bytes) -> list[SseEvent]:
        """The same for the usual case: nothing is pending before these bytes or after them."""
        events: list[SseEvent] = []
        for block in data[:-2].split(b"\n\n"):
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(_new(SseEvent, (block[6:], b"", self._last_id)))
                continue
            for line in block.split(b"\n"):
                self._line(line, events)
            self._line(b"", events)
        return events

    def close(self) -> list[SseEvent]:
        """The event that the stream ended in, if any."""
        events: list[SseEvent] = []
        if self._head:
            self._keep(self._head)
        self._head = None
        if self._partial:
            self._line(self._take_partial(b""), events)
        self._line(b"", events)
        return events

    def _without_bom(self, data: bytes) -> bytes:
        data = (self._head or b"") + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._head = data
            return b""
        self._head = None
        return data.removeprefix(_BOM)

    def _with_newlines(self, data: bytes) -> bytes:
        """Each of CR, LF and CRLF as one LF, also where a CRLF is cut in two."""
        if self._skip_newline:
            data = data.removeprefix(b"\n")
            self._skip_newline = False
        self._skip_newline = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, rest: bytes) -> None:
        self._partial.append(rest)
        self._partial_bytes += len(rest)
        if self._partial_bytes > self._max_bytes:
            raise SseError(f"a line is longer than {self._max_bytes} bytes")

    def _take_partial(self, end: bytes) -> bytes:
        self._partial.append(end)
        line = b"".join(self._partial)
        self._partial.clear()
        self._partial_bytes = 0
        return line

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(SseEvent(data, self._name, self._last_id))
                self._data, self._data_bytes = [], 0
            self._name = b""
        elif line.startswith(b"data:"):
            self._add_data(line[6:] if line.startswith(b" ", 5) else line[5:])
        elif line.startswith(b":"):
            self.comments += 1
        else:
            self._field(*line.partition(b":"))

    def _add_data(self, value: bytes) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + 1
        if self._data_bytes > self._max_bytes:
            raise SseError(f"an event is longer than {self._max_bytes} bytes")

    def _field(self, name: bytes, _colon: bytes, value: bytes) -> None:
        value = value.removeprefix(b" ")
        if name == b"data":  # a line without a colon is a field with an empty value
            self._add_data(value)
        elif name == b"event":
            self._name = value
        elif name == b"id" and b"\0" not in value:
            self._last_id = value
