"""What servers do wrong, and the one outcome of each; nothing hangs, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchx.serving.client import Client
from benchx.serving.client_decode import retry_after_s
from benchx.serving.http_pool import CantConnect
from benchx.serving.request import Endpoint, Request, RequestResult, TimeLimits


def delta(fields: object, finish: str | None = None) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


A, B = delta({"content": "a"}), delta({"content": "b"})
STOP, DONE = delta({}, "stop"), b"data: [DONE]\n\n"
QUICK = TimeLimits(connect_s=0.5, first_byte_s=0.3, idle_s=0.3, total_s=5.0)
BEGUN = replace(QUICK, first_byte_s=4.0)
"""For answers that begin: a machine under load takes its time for that, too."""


def expect(result: RequestResult, outcome: str, *words: str) -> None:
    """The outcome, and a reason that holds these words."""
    assert result.outcome == outcome, result.reason
    for word in words:
        assert word in (result.reason or ""), result.reason


@pytest.mark.parametrize("body", [b"", DONE, STOP + DONE, delta({"role": "assistant"}) + DONE])
def test_an_answer_without_text_is_empty(body: bytes, desk: SimpleNamespace) -> None:
    result = desk.one_answer(desk.whole(body))
    expect(result, "empty")
    assert result.first_token_ns is None


def test_a_stream_without_finish_and_done_is_truncated(desk: SimpleNamespace) -> None:
    result = desk.one_answer(desk.whole(A + B))
    expect(result, "truncated", "finish_reason")
    assert result.text == "ab"


@pytest.mark.parametrize("end", [STOP, DONE, b"data: [DONE]"])
def test_either_finish_or_done_makes_an_answer_complete(end: bytes, desk: SimpleNamespace) -> None:
    expect(desk.one_answer(desk.whole(A + end)), "ok")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("429 Too Many Requests", "rate_limited"),
        ("400 Bad Request", "http_4xx"),
        ("404 Not Found", "http_4xx"),
        ("500 Internal Server Error", "http_5xx"),
        ("503 Service Unavailable", "http_5xx"),
        ("204 No Content", "protocol"),
        ("302 Found", "protocol"),
    ],
)
def test_a_status_other_than_200_has_its_outcome(
    status: str, outcome: str, desk: SimpleNamespace
) -> None:
    body = b"" if status.startswith("204") else b'{"error": {"message": "no such luck"}}'
    answer = desk.whole(body, status=status, kind="application/json", extra="Location: /x\r\n")
    expect(desk.one_answer(answer), outcome, f"HTTP {status[:3]}")


def test_the_reason_holds_what_the_server_said(desk: SimpleNamespace) -> None:
    body = b'{"error": {"message": "context\\nis too long"}}'
    answer = desk.whole(body, status="400 Bad Request", kind="application/json")
    expect(desk.one_answer(answer), "http_4xx", "HTTP 400: context is too long")


def test_retry_after_is_kept(desk: SimpleNamespace) -> None:
    answer = desk.whole(b"", status="429 Too Many Requests", extra="Retry-After: 7\r\n")
    assert desk.one_answer(answer).retry_after_s == 7.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.5", 1.5),
        ("-1", 0.0),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("inf", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert retry_after_s(text) == seconds


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (b'data: {"error": {"message": "boom", "code": 500}}\n\n', "http_5xx"),
        (b'data: {"error": {"message": "boom", "code": "429"}}\n\n', "rate_limited"),
        (b'data: {"error": "boom"}\n\n', "protocol"),
        (b'event: error\ndata: {"message": "boom"}\n\n', "protocol"),
    ],
)
def test_an_error_within_a_good_answer_fails_it(
    event: bytes, outcome: str, desk: SimpleNamespace
) -> None:
    result = desk.one_answer(desk.whole(A + event + DONE))
    expect(result, outcome, "boom")
    assert result.text == "a"


def test_html_instead_of_a_stream_is_no_answer(desk: SimpleNamespace) -> None:
    page = desk.whole(b"<!doctype html><title>Sign in</title>", kind="text/html")
    expect(desk.one_answer(page), "protocol", "expected JSON", "text/html", "Sign in")


def test_text_that_is_no_stream_is_no_answer(desk: SimpleNamespace) -> None:
    expect(desk.one_answer(desk.whole(b"hello\n", kind="text/plain")), "protocol", "no events")


@pytest.mark.parametrize(
    "data", [b"data: {oops}\n\n", b"data: [1]\n\n", b'data: {"a": "\xff"}\n\n']
)
def test_an_event_that_is_no_json_object_is_refused(data: bytes, desk: SimpleNamespace) -> None:
    expect(desk.one_answer(desk.whole(A + data + B + STOP)), "protocol", "an event is")


def test_invalid_utf_8_within_text_is_refused(desk: SimpleNamespace) -> None:
    body = A + B + A.replace(b'"a"', b'"\xc3\x28"') + STOP
    expect(desk.one_answer(desk.whole(body)), "protocol", "not JSON")


def test_bytes_that_are_no_http_are_refused(desk: SimpleNamespace) -> None:
    expect(desk.one_answer(b"SSH-2.0-OpenSSH_9.6\r\n"), "protocol", "not HTTP/1.1", "SSH")


def test_headers_without_end_are_refused(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        for _index in range(100_000):
            writer.write(b"X-A: " + b"y" * 1000 + b"\r\n")
            await writer.drain()

    expect(desk.with_server(answer), "protocol", "headers don't end")


def test_a_line_of_a_gigabyte_is_refused_early(desk: SimpleNamespace) -> None:
    sent = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(desk.chunked)
        piece = desk.framed(b"x" * 65536)
        while sent < 2**30:
            writer.write(piece)
            await writer.drain()
            sent += 65536

    expect(desk.with_server(answer), "protocol", "a line is longer than")
    assert sent < 64 * 2**20


def test_a_server_that_refuses_is_disconnected(desk: SimpleNamespace) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        expect(asyncio.run(desk.ask(url)), "disconnected", "can't connect")


def test_a_name_that_does_not_exist_is_disconnected(desk: SimpleNamespace) -> None:
    expect(asyncio.run(desk.ask("http://no.such.host.invalid/v1")), "disconnected", "can't connect")


def test_a_server_that_dies_in_the_middle_is_disconnected(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.chunked + desk.framed(A))
        await writer.drain()
        writer.transport.abort()

    result = desk.with_server(answer)
    expect(result, "disconnected", "within its answer")
    assert result.text == "a"


def test_a_body_shorter_than_its_length_is_disconnected(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.whole(A + STOP)[:-5])
        writer.close()

    expect(desk.with_server(answer), "disconnected", "within its answer")


def test_an_answer_that_ends_with_the_connection_is_complete(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        writer.write(head + A + STOP + DONE)
        await writer.drain()
        writer.close()

    expect(desk.with_server(answer), "ok")


def test_an_answer_that_is_done_but_never_ends_counts_and_is_noted(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.chunked + desk.framed(A + STOP + DONE))
        await asyncio.sleep(30)

    result = desk.with_server(answer, limits=BEGUN)
    expect(result, "ok")
    assert "unclean_end" in result.notes


def test_100_continue_is_not_the_answer(desk: SimpleNamespace) -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\n" + desk.whole(A + STOP)
    expect(desk.one_answer(answer), "ok")


def test_a_second_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(
    desk: SimpleNamespace,
) -> None:
    count = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        text = b"first" if count == 1 else b"next"
        body = desk.whole(A.replace(b'"a"', b'"%b"' % text) + STOP)
        writer.write(body * (2 if count == 1 else 1))

    async def main() -> list[str]:
        async with desk.scripted(answer) as server:
            endpoint = Endpoint(base_url=server.url, api="chat", model="m")
            async with Client(endpoint, desk.limits) as client:
                return [(await client.send(Request(index=i, max_tokens=2))).text for i in (0, 1)]

    assert asyncio.run(main()) == ["first", "next"]


def test_a_connection_closed_while_idle_is_replaced(desk: SimpleNamespace) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.whole(A + STOP))
        await writer.drain()
        writer.close()

    async def main() -> list[RequestResult]:
        async with desk.scripted(answer) as server:
            endpoint = Endpoint(base_url=server.url, api="chat", model="m")
            async with Client(endpoint, desk.limits) as client:
                return [await client.send(Request(index=i, max_tokens=2)) for i in range(3)]

    assert [result.outcome for result in asyncio.run(main())] == ["ok"] * 3


def test_a_connection_closed_the_moment_it_is_used_is_replaced_once(desk: SimpleNamespace) -> None:
    seen = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            writer.transport.abort()
        else:
            writer.write(desk.whole(A + STOP))

    async def main() -> list[RequestResult]:
        async with desk.scripted(answer) as server:
            endpoint = Endpoint(base_url=server.url, api="chat", model="m")
            async with Client(endpoint, desk.limits) as client:
                return [await client.send(Request(index=i, max_tokens=2)) for i in range(2)]

    first, second = asyncio.run(main())
    assert (first.connects, second.connects) == (1, 1)
    assert second.outcome == "ok"


def test_connections_that_cannot_be_opened_beforehand_are_an_error() -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
            async with Client(Endpoint(base_url=url, api="chat", model="m")) as client:
                await client.open(3)

    with pytest.raises(CantConnect, match="can't connect"):
        asyncio.run(main())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a key and a certificate for 127.0.0.1 that nobody trusts."""
    path = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    path.write_text(key.read_text() + cert.read_text())
    return path


@pytest.mark.parametrize("trust", ["nobody", "the file", "everybody"])
def test_tls_is_checked_unless_the_endpoint_says_otherwise(trust: str, certificate: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/chat/completions")
        body = A + STOP
        kind = b"Content-Type: text/event-stream\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (kind, len(body)) + body)
        await writer.drain()
        await reader.read()  # until the client has what it came for
        writer.close()

    async def main() -> RequestResult:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        endpoint = Endpoint(
            base_url=url,
            api="chat",
            model="m",
            verify_tls=trust != "everybody",
            ca_file=str(certificate) if trust == "the file" else None,
        )
        async with server, Client(endpoint, replace(BEGUN, connect_s=5.0)) as client:
            result = await client.send(Request(index=0, max_tokens=2))
            server.close()
        return result

    result = asyncio.run(main())
    if trust == "nobody":
        expect(result, "disconnected", "TLS", "failed")
    else:
        expect(result, "ok")
