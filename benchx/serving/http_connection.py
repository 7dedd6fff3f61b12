"""One HTTP/1.1 connection on an asyncio transport: bytes are stamped the moment they arrive.

Nothing here looks into a body as it arrives; the time between the kernel and the stamp is one pass
through the event loop. HTTP itself is read by llhttp (httptools).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic_ns
from typing import cast

import httptools

from benchx.serving.client_stream import has_payload
from benchx.serving.http_capture import Capture, Fault
from benchx.serving.request import RequestOutcome, TimeLimits

MAX_HEAD_BYTES = 256 * 2**10
MAX_LINE_BYTES = 16 * 2**20
MAX_BODY_BYTES = 512 * 2**20

_NS = 1_000_000_000


class Connection(asyncio.Protocol):
    """Carries one exchange at a time.

    Args:
        limits: Time limits of every exchange.
    """

    def __init__(self, limits: TimeLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._capture: Capture | None = None
        self._waiter: asyncio.Future[Capture] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._pieces: list[bytes] = []
        self._read_bytes = self._check_at_bytes = self._line_bytes = 0
        self._checked_pieces = self._body_pieces = 0
        self._head_done = self._complete = self._begun = False
        self.reusable = False

    # What a client does with it.

    def begin(self, payload: bytes, capture: Capture) -> asyncio.Future[Capture]:
        """Send a request; the future yields the capture, whose `fault` says what went wrong.

        Cancelling the future does not stop the exchange; `abort` does.
        """
        assert self._capture is None, "one exchange at a time"
        assert self._transport is not None
        self._capture, self._waiter = capture, self._loop.create_future()
        self._pieces.clear()
        self._parser = httptools.HttpResponseParser(_Listener(self, self._pieces))
        self._read_bytes, self._check_at_bytes = 0, MAX_HEAD_BYTES
        self._line_bytes = self._checked_pieces = 0
        self._head_done = self._complete = self._begun = False
        capture.sent_ns = monotonic_ns()
        self._transport.write(payload)
        self._arm(min(self._limits.first_byte_s, self._limits.total_s))
        return self._waiter

    def abort(self) -> None:
        """Drop the connection at once; an exchange under way ends as disconnected."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self.reusable = True

    def data_received(self, data: bytes) -> None:
        """Stamp, then let the parser find the body."""
        now_ns = monotonic_ns()
        capture, parser = self._capture, self._parser
        if capture is None or parser is None:
            self.abort()  # bytes that nobody asked for: the next response would be theirs
            return
        capture.last_read_ns = now_ns
        if capture.first_byte_ns is None:
            capture.first_byte_ns = now_ns
        fault = None
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            fault = "the server wants to change the protocol"
        except httptools.HttpParserError as error:
            fault = f"not HTTP/1.1: {error}; got {data[:60]!r}"
        pieces = self._pieces
        if self._complete:
            del pieces[self._body_pieces :]
        if pieces:
            capture.stamps_ns.append(now_ns)
            capture.pieces.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            pieces.clear()
        self._read_bytes += len(data)
        if fault is not None:
            self._fail(RequestOutcome.PROTOCOL, fault)
        elif self._complete:
            self._finish()
        elif self._read_bytes > self._check_at_bytes:
            self._check_size(capture.pieces)

    def _check_size(self, pieces: Sequence[bytes]) -> None:
        """Refuse a head, a line or a body without end; looked for after every so many bytes."""
        self._check_at_bytes = self._read_bytes + MAX_HEAD_BYTES
        body = b"".join(pieces[self._checked_pieces :])
        self._checked_pieces = len(pieces)
        end = max(body.rfind(b"\n"), body.rfind(b"\r"))
        self._line_bytes = len(body) - end - 1 + (self._line_bytes if end < 0 else 0)
        if not self._head_done:
            self._fail(RequestOutcome.PROTOCOL, "the response headers don't end")
        elif self._line_bytes > MAX_LINE_BYTES:
            self._fail(RequestOutcome.PROTOCOL, f"a line of more than {MAX_LINE_BYTES} bytes")
        elif self._read_bytes > MAX_BODY_BYTES:
            self._fail(RequestOutcome.PROTOCOL, f"a response of more than {MAX_BODY_BYTES} bytes")

    def eof_received(self) -> None:
        """The server is done; `connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`; a body without a stated length ends here."""
        self.reusable = False
        capture = self._capture
        if capture is None:
            return
        headers = capture.headers
        by_length = "content-length" in headers or "transfer-encoding" in headers
        if self._head_done and exc is None and not by_length:
            self._finish()
            return
        what = f": {exc}" if exc is not None else ""
        when = "before it answered" if capture.first_byte_ns is None else "within its answer"
        self._fail(RequestOutcome.DISCONNECTED, f"the server closed the connection {when}{what}")

    # What the parser finds.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        if self._capture is not None and not self._complete:
            self._capture.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Keep the status."""
        if self._capture is not None and self._parser is not None and not self._complete:
            self._capture.status = self._parser.get_status_code()
            self._head_done = True

    def on_message_complete(self) -> None:
        """The response is whole, unless it only said to go on (1xx)."""
        capture, parser = self._capture, self._parser
        if capture is None or parser is None:
            return
        if capture.status is not None and capture.status < 200:
            capture.headers.clear()
            capture.status, self._head_done = None, False
            return
        if self._complete or not parser.should_keep_alive():
            self.reusable = False  # also when a second response follows that nobody asked for
        if not self._complete:
            self._complete, self._body_pieces = True, len(self._pieces)

    # How an exchange ends.

    def _finish(self) -> None:
        capture, waiter = self._capture, self._waiter
        assert capture is not None
        assert waiter is not None
        capture.end_ns = monotonic_ns()
        capture.body_bytes = sum(map(len, capture.pieces))
        self._capture = self._waiter = self._parser = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.reusable and self._transport is not None:
            self._transport.abort()
        if not waiter.done():
            waiter.set_result(capture)

    def _fail(self, outcome: RequestOutcome, reason: str) -> None:
        if self._capture is not None:
            self._capture.fault = Fault(outcome, reason)
            self.reusable = False
            self._finish()

    def _arm(self, delay_s: float) -> None:
        """Look again after a time, and not later than an answer that begins now could stall."""
        delay_s = min(delay_s, self._limits.idle_s)
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        """One timer per exchange: fail if a limit has passed, else sleep until the next may."""
        capture, limits = self._capture, self._limits
        if capture is None or capture.sent_ns is None:
            return
        now_ns = monotonic_ns()
        due: list[tuple[float, str]] = []
        total_s = limits.total_s - (now_ns - capture.sent_ns) / _NS
        due.append((total_s, f"not complete within {limits.total_s:g} s"))
        # Engines send the headers at once, some a chunk that names the role as well, and queue the
        # request behind them: an answer begins with its first payload.
        self._begun = self._begun or has_payload(capture)
        if self._begun and capture.last_read_ns is not None:
            left_s = limits.idle_s - (now_ns - capture.last_read_ns) / _NS
            due.append((left_s, f"nothing for {limits.idle_s:g} s in the middle of the answer"))
        else:
            left_s = limits.first_byte_s - (now_ns - capture.sent_ns) / _NS
            due.append((left_s, f"{_until_now(capture)} within {limits.first_byte_s:g} s"))
        next_s, reason = min(due)
        if next_s <= 0:
            self._fail(RequestOutcome.TIMEOUT, reason)
        else:
            self._arm(next_s + 0.001)


def _until_now(capture: Capture) -> str:
    """What there is of an answer that has not begun."""
    if capture.last_read_ns is None:
        return "no byte"
    return "nothing generated" if capture.pieces else "nothing but headers"


class _Listener:
    """What the parser calls; `on_body` is a list's own `append`, so that it costs next to nothing.

    Args:
        connection: Hears of the head and the end.
        pieces: Takes the pieces of the body.
    """

    def __init__(self, connection: Connection, pieces: list[bytes]) -> None:
        self.on_header = connection.on_header
        self.on_headers_complete = connection.on_headers_complete
        self.on_message_complete = connection.on_message_complete
        self.on_body = pieces.append
