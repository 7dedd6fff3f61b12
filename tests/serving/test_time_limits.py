"""Time limits: each costs one request, is found when it has passed, and keeps what had come."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchx.serving.client import Client
from benchx.serving.request import Endpoint, Request, RequestResult, TimeLimits


def delta(fields: object, finish: str | None = None) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


A, STOP, DONE = delta({"content": "a"}), delta({}, "stop"), b"data: [DONE]\n\n"
QUICK = TimeLimits(connect_s=0.5, first_byte_s=0.3, idle_s=0.3, total_s=5.0)
BEGUN = replace(QUICK, first_byte_s=4.0)
"""For answers that begin: a machine under load takes its time for that, too."""


def expect(result: RequestResult, outcome: str, *words: str) -> None:
    """The outcome, and a reason that holds these words."""
    assert result.outcome == outcome, result.reason
    for word in words:
        assert word in (result.reason or ""), result.reason


def test_a_server_that_accepts_and_never_answers_is_a_timeout(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    began = time.monotonic()
    expect(desk.with_server(answer, limits=QUICK), "timeout", "no byte within 0.3 s")
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("takes_s", [0.5, 30.0])
def test_headers_that_come_at_once_do_not_shorten_the_wait_for_the_first_token(
    takes_s: float, desk: SimpleNamespace
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.chunked)
        await writer.drain()
        await asyncio.sleep(takes_s)
        writer.write(desk.framed(A + STOP + DONE) + b"0\r\n\r\n")

    limits = replace(BEGUN, idle_s=0.1, total_s=20.0)
    result = desk.with_server(answer, limits=limits)
    if takes_s > limits.first_byte_s:
        expect(result, "timeout", "nothing but headers within 4 s")
    else:
        expect(result, "ok")


@pytest.mark.parametrize("early", [delta({"role": "assistant", "content": ""}), b": queued\n\n"])
@pytest.mark.parametrize("takes_s", [0.5, 30.0])
def test_what_is_no_payload_does_not_shorten_the_wait_for_the_first_token(
    takes_s: float, early: bytes, desk: SimpleNamespace
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.chunked + desk.framed(early))
        await writer.drain()
        await asyncio.sleep(takes_s)
        writer.write(desk.framed(A + STOP + DONE) + b"0\r\n\r\n")

    limits = replace(QUICK, first_byte_s=2.0, idle_s=0.1, total_s=20.0)
    result = desk.with_server(answer, limits=limits)
    if takes_s > limits.first_byte_s:
        expect(result, "timeout", "nothing generated within 2 s")
    else:
        expect(result, "ok")


def test_an_answer_in_one_piece_begins_with_its_first_byte(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.whole(b" " * 100, kind="application/json")[:-50])
        await writer.drain()
        await asyncio.sleep(30)

    limits = replace(QUICK, first_byte_s=20.0, total_s=20.0)
    expect(desk.with_server(answer, limits=limits), "timeout", "nothing for 0.3 s")


def test_a_stream_that_stalls_is_a_timeout_and_keeps_its_tokens(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.chunked + desk.framed(A))
        await asyncio.sleep(30)

    result = desk.with_server(answer, limits=BEGUN)
    expect(result, "timeout", "nothing for 0.3 s")
    assert (result.text, result.client_tokens) == ("a", 1)


def test_a_stall_is_found_after_the_idle_limit_however_long_the_first_byte_may_take(
    desk: SimpleNamespace,
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)  # longer than the idle limit: nothing has begun yet
        writer.write(desk.chunked + desk.framed(A))
        await asyncio.sleep(30)

    began = time.monotonic()
    limits = replace(QUICK, first_byte_s=20.0, total_s=20.0)
    result = desk.with_server(answer, limits=limits)
    expect(result, "timeout", "nothing for 0.3 s")
    assert result.text == "a"
    assert time.monotonic() - began < 10


def test_a_byte_now_and_then_does_not_outlive_the_total_limit(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.chunked)
        for byte in desk.framed(A * 1000):
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    limits = replace(QUICK, first_byte_s=5.0, total_s=0.6)
    expect(desk.with_server(answer, limits=limits), "timeout", "not complete within 0.6 s")


def test_one_stuck_stream_costs_one_request(desk: SimpleNamespace) -> None:
    count = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        if count == 2:
            await asyncio.sleep(30)
        writer.write(desk.whole(A + STOP))

    async def main() -> list[str]:
        async with desk.scripted(answer) as server:
            endpoint = Endpoint(base_url=server.url, api="chat", model="m")
            async with Client(endpoint, replace(QUICK, first_byte_s=2.0)) as client:
                sends = (client.send(Request(index=i, max_tokens=2)) for i in range(3))
                return sorted(result.outcome for result in await asyncio.gather(*sends))

    assert asyncio.run(main()) == ["ok", "ok", "timeout"]
