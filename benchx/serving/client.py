"""The client: sends requests on warm connections and turns what came back into results."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic_ns, perf_counter_ns
from types import TracebackType
from typing import Self

from benchx.serving.client_decode import Exchange, decode_steps
from benchx.serving.client_finish import demands_exact_length
from benchx.serving.http_capture import Capture
from benchx.serving.http_connection import Connection
from benchx.serving.http_pool import CantConnect, Pool, tls_context
from benchx.serving.http_wire import Encoder
from benchx.serving.request import (
    Endpoint,
    Request,
    RequestOutcome,
    RequestResult,
    TimeLimits,
)

_SLICE_NS = 1_000_000
"""Decoding runs for a millisecond, then the sockets have their turn."""

_LONG_SLICE_NS = 4_000_000
_BACKLOG_BYTES = 64 * 2**20

_STALE_NS = 1_000_000_000
"""A connection that was closed while idle shows it within a round trip."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop where it is installed, else asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Decoder:
    """Decodes exchanges one after the other in short slices, in between of the sockets' work."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Exchange, asyncio.Future[RequestResult]]] = deque()
        self._backlog_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def decode(self, exchange: Exchange) -> asyncio.Future[RequestResult]:
        """Queue an exchange; the future yields its result."""
        future: asyncio.Future[RequestResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((exchange, future))
        self._backlog_bytes += exchange.capture.body_bytes
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
            self._task.add_done_callback(self._fail)
        return future

    def _fail(self, task: asyncio.Task[None]) -> None:
        """After a fault of ours in one answer all that wait must hear of it, or wait for ever."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
        self._backlog_bytes = 0

    async def _work(self) -> None:
        until_ns = self._slice_end()
        while self._waiting:
            exchange, future = self._waiting[0]
            steps = decode_steps(exchange)
            result: RequestResult | None = None
            while result is None:
                try:
                    next(steps)
                except StopIteration as end:
                    result = end.value
                if perf_counter_ns() > until_ns:
                    await asyncio.sleep(0)
                    until_ns = self._slice_end()
            self._waiting.popleft()
            self._backlog_bytes -= exchange.capture.body_bytes
            if not future.done():
                future.set_result(result)

    def _slice_end(self) -> int:
        busy = self._backlog_bytes > _BACKLOG_BYTES
        return perf_counter_ns() + (_LONG_SLICE_NS if busy else _SLICE_NS)


class Client:
    """Talks to one endpoint; use it as an async context manager.

    Args:
        endpoint: Where and how to ask.
        limits: When to give up.

    Raises:
        UsageError: The endpoint can't be used (URL, headers, missing environment variable).
    """

    def __init__(self, endpoint: Endpoint, limits: TimeLimits | None = None) -> None:
        self.endpoint = endpoint
        self._encoder = Encoder(endpoint)
        self._pool = Pool(self._encoder.address, limits or TimeLimits(), tls_context(endpoint))
        self._decoder = Decoder()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.close()

    async def open(self, connections: int) -> None:
        """Open connections before the clock starts.

        Raises:
            CantConnect: One could not be opened.
        """
        await self._pool.open(connections)

    def encode(self, request: Request) -> bytes:
        """The bytes of a request; call it before the clock starts.

        Raises:
            UsageError: The request does not fit the API.
        """
        return self._encoder.encode(request)

    async def fetch(self, payload: bytes) -> Capture:
        """Send bytes made by `encode` and wait for the answer; never raises for what a server does.

        A warm connection that the server closed before it answered is replaced once: it was
        closed while it was idle, and the request was never read.
        """
        capture = Capture()
        warm = self._pool.take()
        if warm is not None:
            await self._exchange(warm, payload, capture)
            if not _is_stale(capture):
                return capture
            capture = Capture()
        try:
            capture.connects += 1
            connection = await self._pool.connect()
        except CantConnect as error:
            capture.fault, capture.end_ns = error.fault, monotonic_ns()
            return capture
        await self._exchange(connection, payload, capture)
        return capture

    def decode(
        self, request: Request, capture: Capture, intended_ns: int
    ) -> asyncio.Future[RequestResult]:
        """Queue a capture for decoding."""
        exchange = Exchange(
            request=request,
            capture=capture,
            intended_ns=intended_ns,
            stream=self.endpoint.stream,
            exact=demands_exact_length(
                {**self.endpoint.extra_body, **request.extra}, request.max_tokens
            ),
            redact=self._encoder.redact,
        )
        return self._decoder.decode(exchange)

    async def send(self, request: Request) -> RequestResult:
        """Encode, send now, wait, decode."""
        payload = self.encode(request)
        intended_ns = monotonic_ns()
        return await self.decode(request, await self.fetch(payload), intended_ns)

    async def _exchange(self, connection: Connection, payload: bytes, capture: Capture) -> None:
        try:
            await connection.begin(payload, capture)
        except asyncio.CancelledError:
            connection.abort()
            raise
        self._pool.give(connection)


def _is_stale(capture: Capture) -> bool:
    """Whether a warm connection broke at once and without a byte of an answer."""
    fault, sent_ns, end_ns = capture.fault, capture.sent_ns, capture.end_ns
    if fault is None or sent_ns is None or end_ns is None or capture.first_byte_ns is not None:
        return False
    return fault.outcome is RequestOutcome.DISCONNECTED and end_ns - sent_ns < _STALE_NS
