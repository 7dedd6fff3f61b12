"""The client against servers whose every byte is known."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.errors import UsageError
from benchx.serving.client import Client
from benchx.serving.client_decode import Exchange, decode
from benchx.serving.http_capture import Capture
from benchx.serving.http_wire import Encoder
from benchx.serving.request import Endpoint, Request, RequestResult


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def delta(fields: object, finish: str | None = None, **more: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}], **more})


def usage_only(**counts: object) -> bytes:
    return event({"choices": [], "usage": counts})


DONE = b"data: [DONE]\n\n"
HELLO = (
    delta({"role": "assistant", "content": ""}) + delta({"content": "a"}) + delta({"content": "b"})
)
GOOD = HELLO + delta({}, "stop") + DONE


def read(*reads: tuple[int, bytes], max_tokens: int = 100) -> RequestResult:
    """What the decoder makes of a body that arrived in these pieces."""
    capture = Capture(
        sent_ns=0,
        first_byte_ns=reads[0][0],
        last_read_ns=reads[-1][0],
        end_ns=reads[-1][0] + 1,
        status=200,
        headers={"content-type": "text/event-stream"},
        stamps_ns=[stamp_ns for stamp_ns, _ in reads],
        pieces=[data for _, data in reads],
        body_bytes=sum(len(data) for _, data in reads),
    )
    return decode(
        Exchange(
            request=Request(index=0, max_tokens=max_tokens),
            capture=capture,
            intended_ns=0,
            stream=True,
            redact=str,
        )
    )


def test_a_streamed_answer_is_ok_with_its_text(desk: SimpleNamespace) -> None:
    result = desk.one_answer(desk.whole(GOOD))
    assert (result.outcome, result.text, result.finish_reason) == ("ok", "ab", "stop")
    assert result.client_tokens == 2
    assert result.done


def test_times_follow_one_another(desk: SimpleNamespace) -> None:
    result = desk.one_answer(desk.whole(GOOD))
    order = [
        result.intended_ns,
        result.sent_ns,
        result.first_byte_ns,
        result.first_token_ns,
        result.last_token_ns,
        result.end_ns,
    ]
    assert order == sorted(order)


def test_a_role_only_chunk_is_not_the_first_token() -> None:
    result = read(
        (1, delta({"role": "assistant", "content": ""})), (500, delta({"content": "x"}, "stop"))
    )
    assert result.first_token_ns == 500


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_under_any_name_is_the_first_token(name: str) -> None:
    result = read(
        (5, delta({"content": None, name: "hm"})), (9, delta({"content": "x"}, "stop")), (10, DONE)
    )
    times = (result.first_token_ns, result.first_reasoning_ns, result.first_visible_ns)
    assert times == (5, 5, 9)
    assert (result.reasoning, result.text) == ("hm", "x")


def test_an_answer_cut_within_its_reasoning_has_no_visible_token() -> None:
    result = read((5, delta({"reasoning": "hm"})), (6, delta({}, "length")), (7, DONE))
    assert result.first_visible_ns is None
    assert result.outcome == "ok"


def test_a_tool_call_is_a_token() -> None:
    call = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}
    result = read((5, delta(call)), (6, delta({}, "tool_calls")), (7, DONE))
    assert (result.outcome, result.first_token_ns, result.first_visible_ns) == ("ok", 5, 5)


def test_completions_text_is_read_too() -> None:
    piece = event({"choices": [{"index": 0, "text": "x", "finish_reason": None}]})
    last = event({"choices": [{"index": 0, "text": "y", "finish_reason": "length"}]})
    result = read((3, piece), (4, last), (5, DONE))
    assert (result.text, result.arrivals_ns) == ("xy", (3, 4))


def test_usage_per_chunk_tells_the_tokens_of_each() -> None:
    def piece(text: str, total: int) -> bytes:
        return delta({"content": text}, usage={"prompt_tokens": 3, "completion_tokens": total})

    result = read((1, piece("a", 20)), (2, piece("b", 28)), (3, piece("c", 40)), (4, DONE))
    assert result.chunk_tokens == (20, 8, 12)
    assert result.chunk_tokens_known


def test_usage_at_the_end_only_says_nothing_of_single_chunks() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 16}
    last = delta({"content": "b"}, "stop", usage=usage)
    result = read((1, delta({"content": "a"})), (2, last), (3, DONE))
    assert result.chunk_tokens == (1, 1)
    assert not result.chunk_tokens_known
    assert "chunk_is_not_token" in result.notes
    assert (result.client_tokens, result.output_tokens) == (2, 16)


def test_a_usage_chunk_without_choices_is_read() -> None:
    result = read((1, HELLO), (2, usage_only(completion_tokens=2)), (3, DONE))
    assert result.usage is not None
    assert result.usage.completion_tokens == 2


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"completion_tokens": 2}}]},
        {"choices": [], "x_groq": {"usage": {"completion_tokens": 2}}},
    ],
)
def test_usage_in_odd_places_is_found(chunk: object) -> None:
    result = read((1, HELLO), (2, event(chunk)), (3, DONE))
    assert result.usage is not None
    assert result.output_tokens == 2


def test_cached_and_reasoning_tokens_and_cost_are_kept() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "cost": 0.5,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    result = read((1, HELLO), (2, event({"choices": [], "usage": usage})), (3, DONE))
    found = result.usage
    assert found is not None
    assert (found.cached_tokens, found.reasoning_tokens, found.cost) == (8, 1, 0.5)


@pytest.mark.parametrize("tokens", [0, -3, "many", None, 2.5, True])
def test_a_usage_that_cannot_be_true_is_set_aside(tokens: object) -> None:
    result = read(
        (1, HELLO), (2, event({"choices": [], "usage": {"completion_tokens": tokens}})), (3, DONE)
    )
    assert "usage_implausible" in result.notes
    assert result.output_tokens == result.client_tokens == 2


def test_more_tokens_than_asked_for_is_noted() -> None:
    usage = event({"choices": [], "usage": {"completion_tokens": 20}})
    assert "exceeds_max_tokens" in read((1, HELLO), (2, usage), (3, DONE), max_tokens=2).notes


def test_comments_are_counted_and_are_no_tokens() -> None:
    result = read((1, b": keep-alive\n\n"), (2, GOOD))
    assert (result.outcome, result.comments, result.first_token_ns) == ("ok", 1, 2)


def test_an_answer_that_is_not_streamed_is_read_though_a_stream_was_asked_for(
    desk: SimpleNamespace,
) -> None:
    body = {
        "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    result = desk.one_answer(desk.whole(json.dumps(body).encode(), kind="application/json"))
    assert (result.outcome, result.text, result.output_tokens) == ("ok", "hello", 2)
    assert result.first_token_ns is None
    assert result.notes == ("not_streamed",)


def test_connections_are_used_again(desk: SimpleNamespace) -> None:
    async def main() -> int:
        async with desk.scripted(desk.saying(desk.whole(GOOD))) as server:
            async with Client(Endpoint(base_url=server.url, api="chat", model="m")) as client:
                for index in range(5):
                    await client.send(Request(index=index, prompt="x", max_tokens=2))
            return int(server.connections)

    assert asyncio.run(main()) == 1


def test_connections_are_opened_before_the_first_request(desk: SimpleNamespace) -> None:
    async def main() -> tuple[int, list[int]]:
        async with desk.scripted(desk.saying(desk.whole(GOOD))) as server:
            async with Client(Endpoint(base_url=server.url, api="chat", model="m")) as client:
                await client.open(7)
                sends = (client.send(Request(index=i, max_tokens=2)) for i in range(7))
                results = await asyncio.gather(*sends)
            return server.connections, [result.connects for result in results]

    assert asyncio.run(main()) == (7, [0] * 7)


def test_two_hundred_requests_are_in_flight_at_once(desk: SimpleNamespace) -> None:
    waiting = 0
    release = asyncio.Event()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waiting
        waiting += 1
        if waiting == 200:
            release.set()
        await release.wait()
        writer.write(desk.whole(GOOD))

    async def main() -> list[RequestResult]:
        async with desk.scripted(answer) as server:
            endpoint = Endpoint(base_url=server.url, api="chat", model="m")
            client = Client(endpoint, desk.limits)
            await client.open(200)
            sends = (client.send(Request(index=i, max_tokens=2)) for i in range(200))
            async with client:
                return await asyncio.gather(*sends)

    assert {result.outcome for result in asyncio.run(main())} == {"ok"}


def test_the_first_token_is_stamped_when_it_arrives(desk: SimpleNamespace) -> None:
    sent_ns: list[int] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(desk.chunked + desk.framed(delta({"role": "assistant", "content": ""})))
        await writer.drain()
        await asyncio.sleep(0.2)
        sent_ns.append(time.monotonic_ns())
        writer.write(desk.framed(delta({"content": "x"}, "stop")) + b"0\r\n\r\n")

    result = desk.with_server(answer)
    assert result.first_token_ns >= sent_ns[0]
    assert result.first_token_ns - result.first_byte_ns >= 0.19e9


@given(st.data())
def test_any_cut_of_an_answer_gives_the_same_text_and_tokens(data: st.DataObject) -> None:
    body = (
        HELLO + delta({"reasoning": "ü\n"}) + delta({"content": 'q"\\'}) + delta({}, "stop") + DONE
    )
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    ends = [0, *places, len(body)]
    reads = [(i, body[a:b]) for i, (a, b) in enumerate(pairwise(ends))]
    result, plain = read(*reads), read((0, body))
    assert (result.text, result.reasoning, result.outcome) == (plain.text, plain.reasoning, "ok")
    assert len(result.arrivals_ns) == 4


def test_the_body_is_what_the_endpoint_and_the_request_say() -> None:
    endpoint = Endpoint(
        base_url="http://h:1/v1", api="completions", model="m", extra_body={"top_p": 1, "seed": 1}
    )
    request = Request(index=0, prompt=(1, 2), max_tokens=3, extra={"seed": 2})
    head, _, body = Encoder(endpoint).encode(request).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: h:1\r\n")
    assert json.loads(body) == {
        "model": "m",
        "prompt": [1, 2],
        "max_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_p": 1,
        "seed": 2,
    }


def test_the_key_is_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, desk: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret-123")
    endpoint = Endpoint(base_url="http://x/v1", api="chat", model="m", api_key_env="SOME_KEY")
    heads: list[bytes] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'{"error": {"message": "bad key sk-secret-123"}}'
        writer.write(desk.whole(body, status="401 Unauthorized", kind="application/json"))

    async def main() -> RequestResult:
        async with desk.scripted(answer) as server:
            from dataclasses import replace

            result = await desk.ask(server.url, endpoint=replace(endpoint, base_url=server.url))
            heads.extend(server.requests)
            return result

    result = asyncio.run(main())
    assert b"Authorization: Bearer sk-secret-123\r\n" in heads[0]
    stored = json.dumps(result.to_json())
    shown = f"{endpoint!r} {result!r} {stored} {Encoder(endpoint)!r} {caplog.text}"
    assert "sk-secret-123" not in shown
    assert result.reason == "HTTP 401: bad key ***"


def test_a_missing_key_is_an_error_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    endpoint = Endpoint(base_url="http://x/v1", api="chat", model="m", api_key_env="SOME_KEY")
    with pytest.raises(UsageError, match="SOME_KEY is not set"):
        Client(endpoint)


@pytest.mark.parametrize(
    "url", ["ftp://h/v1", "h/v1", "http://", "http://u:p@h/v1", "http://h:x/v1"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        Encoder(Endpoint(base_url=url, api="chat", model="m"))


def test_a_result_survives_json() -> None:
    result = read((1, GOOD))
    assert RequestResult.from_json(json.loads(json.dumps(result.to_json()))) == result
