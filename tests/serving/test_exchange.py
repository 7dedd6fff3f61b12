"""Small exchanges beside the load: whole answers are told from broken ones, on every Python."""

from __future__ import annotations

import http.client
import sys
from pathlib import Path

import pytest

from benchx.serving.exchange import Exchange, get

sys.path.append(str(Path(__file__).parent / "fakes"))
from served import Quiet, served  # type: ignore[import-not-found]

BODY = b"0123456789" * 20_000
"""More than one read takes."""


def ask(data: bytes) -> Exchange:
    """GET from a server that answers with these bytes and closes."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            self.wfile.write(data)

    with served(Handler) as root:
        return get(f"{root}/metrics", timeout_s=10)


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
def test_a_whole_answer_is_one_however_its_socket_is_closed(body: bytes) -> None:
    found = ask(answer(body))
    assert found.error is None
    assert found.ok
    assert found.body == body


@pytest.mark.usefixtures("closing")
def test_a_body_without_a_stated_length_ends_with_the_connection() -> None:
    found = ask(b"HTTP/1.1 200 OK\r\n\r\n" + BODY)
    assert found.ok
    assert found.body == BODY


@pytest.mark.usefixtures("closing")
def test_a_body_that_is_cut_short_is_no_answer_and_what_came_is_kept() -> None:
    found = ask(answer(BODY, length=len(BODY) + 7))
    assert not found.ok
    assert found.error is not None
    assert found.body == BODY


def test_a_chunk_that_is_cut_short_is_no_answer() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert not ask(head + b"10\r\nhalf").ok
