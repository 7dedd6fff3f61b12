"""What the client's own code costs: answers replayed from memory, without kernel and server.

A faster client finds fewer events in each read, which costs it more reads; here the events per read
are given, so that two versions of the client can be compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import process_time
from typing import Any

from benchx.serving.client import new_event_loop
from benchx.serving.client_decode import Exchange, decode
from benchx.serving.groundtruth.stream import Pace, Stream, Truth
from benchx.serving.http_capture import Capture
from benchx.serving.http_connection import Connection
from benchx.serving.request import Request, TimeLimits

ANSWERS, ROUNDS = 400, 9
EVENTS_PER_READ = (1, 4)

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class _Nowhere(asyncio.Transport):
    """Takes what is sent."""

    def write(self, data: object) -> None:
        """Drop it."""


def replay(tokens: int) -> dict[str, Any]:
    """CPU-ms per 1,000 tokens of receiving and of decoding, by events per read.

    Once with usage at the end, once with usage in every chunk (`..._chunk_usage`).
    """
    return {
        f"events_per_read_{events}{kind}": _cost(tokens, events, chunk_usage=bool(kind))
        for kind in ("", "_chunk_usage")
        for events in EVENTS_PER_READ
    }


def _cost(tokens: int, events: int, *, chunk_usage: bool) -> dict[str, float]:
    """The least of some rounds, which is the one that nothing else disturbed."""
    reads = _reads(tokens, events, chunk_usage=chunk_usage)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        rounds = [runner.run(_round(reads, tokens)) for _ in range(ROUNDS)]
    per_1000 = 1e6 / (ANSWERS * tokens)
    return {
        "receive_cpu_ms_per_1000_tokens": per_1000 * min(receive_s for receive_s, _ in rounds),
        "decode_cpu_ms_per_1000_tokens": per_1000 * min(decode_s for _, decode_s in rounds),
    }


def _reads(tokens: int, events: int, *, chunk_usage: bool) -> list[bytes]:
    """One answer of the ground-truth server, cut after so many events."""
    truth = Truth(key="", received_ns=0)
    pace = Pace(ttft_ms=0.0, token_ms=0.0)
    stream = Stream(
        total=tokens,
        chat=True,
        pace=pace,
        prompt_tokens=100,
        chunk_usage=chunk_usage,
        truth=truth,
    )
    sent = [stream.role(), *(stream.next_chunk(0) for _ in range(tokens)), stream.end()]
    reads = [b"".join(sent[first : first + events]) for first in range(0, len(sent), events)]
    return [_HEAD + reads[0], *reads[1:]]


async def _round(reads: Sequence[bytes], tokens: int) -> tuple[float, float]:
    """CPU seconds of receiving all answers on one connection, and of decoding them."""
    connection = Connection(TimeLimits())
    connection.connection_made(_Nowhere())
    began_s = process_time()
    captures = [await _received(connection, reads) for _ in range(ANSWERS)]
    received_s = process_time()
    for capture in captures:
        _decode(capture, tokens)
    return received_s - began_s, process_time() - received_s


async def _received(connection: Connection, reads: Sequence[bytes]) -> Capture:
    waiter = connection.begin(b"", Capture())
    for read in reads:
        connection.data_received(read)
    return await waiter


def _decode(capture: Capture, tokens: int) -> None:
    request = Request(index=0, max_tokens=tokens)
    exchange = Exchange(request=request, capture=capture, intended_ns=0, stream=True, redact=str)
    result = decode(exchange)
    if result.outcome != "ok" or result.client_tokens != tokens:
        raise RuntimeError(f"{result.outcome}, {result.client_tokens} tokens: {result.reason}")
