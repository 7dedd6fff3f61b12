"""One connection without a network: what it keeps of the reads of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.serving import http_connection
from benchx.serving.http_capture import Capture
from benchx.serving.http_connection import Connection
from benchx.serving.request import TimeLimits

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def framed(*chunks: bytes) -> bytes:
    """A whole answer of these chunks."""
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + END


def received(reads: Sequence[bytes]) -> tuple[Capture, bool]:
    """What a connection makes of these reads, and whether its exchange has ended."""

    async def main() -> tuple[Capture, bool]:
        connection = Connection(TimeLimits())
        connection.connection_made(Mock(asyncio.Transport))
        waiter = connection.begin(b"", Capture())
        capture = connection._capture
        assert capture is not None
        for read in reads:
            connection.data_received(read)
        return capture, waiter.done()

    return asyncio.run(main())


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=6), st.lists(st.integers(0, 200)))
def test_any_cut_of_an_answer_keeps_its_body_with_one_stamp_per_read(
    chunks: list[bytes], places: list[int]
) -> None:
    answer = framed(*chunks)
    ends = sorted({0, len(answer), *(place % len(answer) for place in places)})
    capture, done = received([answer[a:b] for a, b in pairwise(ends)])
    assert done
    assert (capture.fault, capture.body()) == (None, b"".join(chunks))
    assert capture.body_bytes == sum(map(len, chunks))
    assert len(capture.stamps_ns) == len(capture.pieces) <= len(ends) - 1
    assert all(capture.pieces)
    assert capture.stamps_ns == sorted(capture.stamps_ns)


@pytest.mark.parametrize("more", [b"garbage", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_http_behind_a_whole_answer_ends_the_exchange_as_a_fault(more: bytes) -> None:
    capture, done = received([framed(b"abc") + more])
    assert done
    assert capture.fault is not None
    assert (capture.fault.outcome, capture.body()) == ("protocol", b"abc")


@pytest.mark.parametrize(
    ("chunks", "fault"),
    [
        ([b"x" * 90 + b"\n"] * 15, None),
        ([b"x" * 90] * 15, "a line of more than 1000 bytes"),
        ([b"x" * 90 + b"\r", *[b"x" * 90] * 15], "a line of more than 1000 bytes"),
        ([b"x" * 90 + b"\n"] * 25, "a response of more than 2000 bytes"),
    ],
)
def test_a_line_or_a_body_without_end_is_refused(
    chunks: list[bytes], fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in {"HEAD": 100, "LINE": 1000, "BODY": 2000}.items():
        monkeypatch.setattr(http_connection, f"MAX_{name}_BYTES", limit)
    answer = framed(*chunks)
    capture, done = received([answer[place : place + 64] for place in range(0, len(answer), 64)])
    assert done
    assert (capture.fault.reason if capture.fault else None) == fault
