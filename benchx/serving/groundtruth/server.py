"""The ground-truth server: `python -m benchx.serving.groundtruth.server '{"ttft_ms": ...}'`.

It prints the port that it listens on, serves until its stdin ends, then prints one JSON line per
answered request. Its own error is the time between a stamp and the send call behind it; every
chunk is sent by itself, as engines do.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import signal
import sys
from time import monotonic_ns
from typing import Any, cast

import httptools
import orjson

from benchx.serving.client import new_event_loop
from benchx.serving.groundtruth.stream import Pace, Stream, Truth
from benchx.serving.http_pool import allow_open_files

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_MODELS = b'{"object":"list","data":[{"id":"truth","object":"model"}]}'
_AT_ONCE = 256


class Pacer:
    """Sends every chunk when it is due: one heap, one timer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[int, int, Served]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._count = 0
        self.truths: list[Truth] = []

    def add(self, served: Served, due_ns: int) -> None:
        """Have a connection's next chunk sent at a time."""
        self._count += 1
        heapq.heappush(self._due, (due_ns, self._count, served))
        if self._timer is None or due_ns < self._timer_ns:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            self._timer_ns = self._due[0][0]
            delay_s = max(self._timer_ns - monotonic_ns(), 0) / 1e9
            self._timer = self._loop.call_later(delay_s, self._send_due)

    def _send_due(self) -> None:
        """Send what is due, at most so much that new requests are not kept waiting."""
        self._timer = None
        for _ in range(_AT_ONCE):
            now_ns = monotonic_ns()
            # Timers of the loop are exact to a millisecond: sleep to it, then be early rather
            # than a whole millisecond late.
            if not self._due or self._due[0][0] > now_ns + 200_000:
                break
            _, _, served = heapq.heappop(self._due)
            due_ns = served.send(now_ns)
            if due_ns is not None:
                self._count += 1
                heapq.heappush(self._due, (due_ns, self._count, served))
        self._arm()


class Served(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, pace: Pace, pacer: Pacer) -> None:
        self._pace, self._pacer = pace, pacer
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._body = b"", bytearray()
        self._stream: Stream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stream = None

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            assert self._transport is not None
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        """Keep the path."""
        self._url += url

    def on_body(self, body: bytes) -> None:
        """Keep the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Answer."""
        now_ns = monotonic_ns()
        url, body = self._url, bytes(self._body)
        self._url = b""
        self._body.clear()
        assert self._transport is not None
        if not url.startswith((b"/v1/chat/completions", b"/v1/completions")):
            content = _MODELS if url.startswith(b"/v1/models") else b"{}"
            self._transport.write(_PLAIN % (len(content), content))
            return
        request = orjson.loads(body)
        total = int(request.get("max_completion_tokens") or request.get("max_tokens") or 16)
        truth = Truth(key=str(request.get("user", "")), received_ns=now_ns)
        self._stream = Stream(
            total=total,
            chat=url.startswith(b"/v1/chat"),
            pace=self._pace,
            prompt_tokens=len(body) // 5,
            chunk_usage=bool((request.get("stream_options") or {}).get("continuous_usage_stats")),
            truth=truth,
        )
        self._start(self._stream)

    def _start(self, stream: Stream) -> None:
        assert self._transport is not None
        role_ms = self._pace.role_ms
        self._transport.write(_HEAD + (b"" if role_ms else stream.role()))
        if role_ms and stream.chat:
            asyncio.get_running_loop().call_later(role_ms / 1e3, self._send_role, stream)
        self._pacer.add(self, stream.due_ns())

    def _send_role(self, stream: Stream) -> None:
        if self._stream is stream and self._transport is not None:
            self._transport.write(stream.role())

    def send(self, now_ns: int) -> int | None:
        """Send the next chunk; returns when the one after it is due, None after the last."""
        stream, transport = self._stream, self._transport
        if stream is None or transport is None:
            return None
        transport.write(stream.next_chunk(now_ns))
        if stream.truth.tokens < stream.total:
            return stream.due_ns()
        transport.write(stream.end())
        self._pacer.truths.append(stream.truth)
        self._stream = None
        return None


async def serve(pace: Pace) -> list[Truth]:
    """Print the port, serve until stdin ends; returns what happened."""
    loop = asyncio.get_running_loop()
    allow_open_files(65_536)
    pacer = Pacer()
    server = await loop.create_server(lambda: Served(pace, pacer), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()
    return pacer.truths


def main() -> None:
    """Serve with the pace given as JSON on the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    settings: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    pace = Pace(**({"ttft_ms": 50.0, "token_ms": 10.0} | settings))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        truths = runner.run(serve(pace))
    for truth in truths:
        print(json.dumps(truth.to_json()))


if __name__ == "__main__":
    main()
