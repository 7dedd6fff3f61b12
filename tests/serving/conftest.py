"""A small server whose every byte a test decides, and a client to send it one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from benchx.serving.client import Client
from benchx.serving.request import Endpoint, Request, RequestResult, TimeLimits

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Scripted:
    """What a scripted server saw.

    Attributes:
        url: Base URL of its API.
        requests: Head and body of each request, in order of arrival.
        connections: Connections accepted.
    """

    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Head and body of one request; raises IncompleteReadError at the end."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    return head + await reader.readexactly(length)


@asynccontextmanager
async def scripted(answer: Handler) -> AsyncIterator[Scripted]:
    """A server that calls `answer` for every request of every connection until one closes it."""
    seen = Scripted()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while not writer.is_closing():
                seen.requests.append(await read_request(reader))
                await answer(reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield seen
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def whole(
    body: bytes, *, status: str = "200 OK", kind: str = "text/event-stream", extra: str = ""
) -> bytes:
    """An answer with a Content-Length."""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def framed(body: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def saying(data: bytes) -> Handler:
    """A handler that answers with these bytes."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


LIMITS = TimeLimits(connect_s=2.0, first_byte_s=5.0, idle_s=5.0, total_s=10.0)


async def ask(
    url: str, *, limits: TimeLimits = LIMITS, endpoint: Endpoint | None = None, tokens: int = 8
) -> RequestResult:
    """Send one request; by default to the chat API."""
    endpoint = endpoint or Endpoint(base_url=url, api="chat", model="m")
    async with Client(endpoint, limits) as client:
        return await client.send(Request(index=0, prompt="hi", max_tokens=tokens))


def one_answer(
    data: bytes, *, limits: TimeLimits = LIMITS, endpoint: Endpoint | None = None, tokens: int = 8
) -> RequestResult:
    """Ask a server that always answers with these bytes."""
    return with_server(saying(data), limits=limits, endpoint=endpoint, tokens=tokens)


def with_server(
    answer: Handler,
    *,
    limits: TimeLimits = LIMITS,
    endpoint: Endpoint | None = None,
    tokens: int = 8,
) -> RequestResult:
    """Ask a server that answers by this handler."""

    async def main() -> RequestResult:
        async with scripted(answer) as server:
            asked = replace(endpoint, base_url=server.url) if endpoint else None
            return await ask(server.url, limits=limits, endpoint=asked, tokens=tokens)

    return asyncio.run(main())


@pytest.fixture
def desk() -> SimpleNamespace:
    """The functions of this file, for tests that talk to a scripted server."""
    return SimpleNamespace(
        scripted=scripted,
        whole=whole,
        framed=framed,
        chunked=CHUNKED,
        saying=saying,
        ask=ask,
        one_answer=one_answer,
        with_server=with_server,
        limits=LIMITS,
        read_request=read_request,
    )
