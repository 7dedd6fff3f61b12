"""Small exchanges beside the load: whole answers are told from broken ones, on every Python."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from benchx.serving.exchange import get

BODY = b"0123456789" * 20_000
"""More than one read takes."""

Serve = Callable[[bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answers every GET with the bytes given, then closes; returns its URL."""
    servers: list[HTTPServer] = []

    def start(answer: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Silent."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/metrics"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def answer(body: bytes, *, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    return head + body


@pytest.fixture(params=["with the read behind it", "with the last byte"])
def closing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a response closes its socket: later versions of Python no longer wait for a read."""
    plain = http.client.HTTPResponse.read1

    def eager(response: http.client.HTTPResponse, n: int = -1) -> bytes:
        data = plain(response, n)
        if response.length == 0 and not response.isclosed():
            response.close()
        return data

    if request.param == "with the last byte":
        monkeypatch.setattr(http.client.HTTPResponse, "read1", eager)


@pytest.mark.usefixtures("closing")
@pytest.mark.parametrize("body", [b"", b"{}", BODY], ids=["empty", "short", "long"])
def test_a_whole_answer_is_one_however_its_socket_is_closed(serve: Serve, body: bytes) -> None:
    found = get(serve(answer(body)), timeout_s=10)
    assert found.error is None
    assert found.ok
    assert found.body == body


@pytest.mark.usefixtures("closing")
def test_a_body_without_a_stated_length_ends_with_the_connection(serve: Serve) -> None:
    found = get(serve(b"HTTP/1.1 200 OK\r\n\r\n" + BODY), timeout_s=10)
    assert found.ok
    assert found.body == BODY


@pytest.mark.usefixtures("closing")
def test_a_body_that_is_cut_short_is_no_answer_and_what_came_is_kept(serve: Serve) -> None:
    found = get(serve(answer(BODY, length=len(BODY) + 7)), timeout_s=10)
    assert not found.ok
    assert found.error is not None
    assert found.body == BODY


def test_a_chunk_that_is_cut_short_is_no_answer(serve: Serve) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert not get(serve(head + b"10\r\nhalf"), timeout_s=10).ok
