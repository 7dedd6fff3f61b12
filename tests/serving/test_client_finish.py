"""How an answer ends: finish reasons, lengths that were demanded, reasoning that was kept back."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from benchx.core.metric import METRICS
from benchx.serving.client_decode import Exchange, decode
from benchx.serving.client_finish import demands_exact_length, finish_fault
from benchx.serving.http_capture import Capture
from benchx.serving.metrics import load_figures
from benchx.serving.metrics_request import request_figures, tpot_ms
from benchx.serving.request import Endpoint, Request, RequestResult

DONE = b"data: [DONE]\n\n"


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(fields: object, finish: str | None = None, **more: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish, **more}]})


def words(count: int) -> bytes:
    return b"".join(delta({"content": f" w{place}"}) for place in range(count))


def counted(tokens: int, reasoning: int | None = None) -> bytes:
    details = {} if reasoning is None else {"reasoning_tokens": reasoning}
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": tokens,
        "completion_tokens_details": details,
    }
    return event({"choices": [], "usage": usage})


def answer(body: bytes, tokens: int = 8, *, exact: bool = False) -> RequestResult:
    """What the decoder makes of a stream whose events come every 10 ms."""
    pieces = [one + b"\n\n" for one in body.split(b"\n\n") if one]
    stamps_ns = [(1 + place) * 10_000_000 for place in range(len(pieces))]
    capture = Capture(
        sent_ns=0,
        first_byte_ns=stamps_ns[0],
        last_read_ns=stamps_ns[-1],
        end_ns=stamps_ns[-1],
        status=200,
        headers={"content-type": "text/event-stream"},
        stamps_ns=stamps_ns,
        pieces=pieces,
        body_bytes=len(body),
    )
    return decode(
        Exchange(
            request=Request(index=0, max_tokens=tokens),
            capture=capture,
            intended_ns=0,
            stream=True,
            exact=exact,
            redact=str,
        )
    )


@pytest.mark.parametrize(
    "reason", ["stop", "length", "tool_calls", "function_call", "eos_token", "STOP", "end_turn"]
)
def test_an_answer_that_the_model_ended_is_ok(reason: str) -> None:
    result = answer(words(2) + delta({}, reason) + DONE)
    assert (result.outcome, result.finish_reason) == ("ok", reason)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("abort", "truncated"),
        ("content_filter", "truncated"),
        ("insufficient_system_resource", "truncated"),
        ("error", "protocol"),
    ],
)
def test_an_answer_that_the_server_ended_early_is_no_success(reason: str, outcome: str) -> None:
    result = answer(words(2) + delta({}, reason) + counted(2) + DONE)
    assert (result.outcome, result.finish_reason) == (outcome, reason)
    assert reason in str(result.reason)
    assert result.output_tokens == 2  # what was generated is kept


def test_of_several_finish_reasons_the_bad_one_stays() -> None:
    body = words(1) + delta({}, "abort") + delta({}, "stop") + DONE
    assert answer(body).outcome == "truncated"


def test_an_answer_in_one_piece_fails_by_the_same_rules(desk: SimpleNamespace) -> None:
    choice = {"message": {"content": "a"}, "finish_reason": "content_filter"}
    broken = {"message": {"content": "a"}, "error": {"code": 502, "message": "gone"}}
    for one, outcome in ((choice, "truncated"), (broken, "http_5xx")):
        body = desk.whole(json.dumps({"choices": [one]}).encode(), kind="application/json")
        assert desk.one_answer(body).outcome == outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [({"code": 502, "message": "gone"}, "http_5xx"), ("gone", "protocol")],
)
def test_an_error_within_a_choice_fails_the_answer(error: object, outcome: str) -> None:
    result = answer(words(3) + delta({"content": ""}, "error", error=error) + DONE)
    assert result.outcome == outcome
    assert "gone" in str(result.reason)
    assert result.text == " w0 w1 w2"


def test_a_choice_whose_error_is_null_is_no_error() -> None:
    body = delta({"content": "a"}, error=None) * 3 + delta({}, "stop", error=None) + DONE
    assert answer(body).outcome == "ok"


@pytest.mark.parametrize(
    ("fields", "demanded"),
    [
        ({"ignore_eos": True}, True),
        ({"min_tokens": 8}, True),
        ({"generation_config": '{"min_new_tokens": 8, "eos_token_id": -1}'}, True),
        ({"generation_config": "{oops"}, False),
        ({"ignore_eos": False}, False),
        ({"min_tokens": 7}, False),
        ({}, False),
    ],
)
def test_what_demands_an_exact_length_is_known(fields: dict[str, object], demanded: bool) -> None:
    assert demands_exact_length(fields, 8) is demanded


@pytest.mark.parametrize(("tokens", "short"), [(8, False), (7, True)])
def test_an_answer_shorter_than_demanded_is_noted(tokens: int, short: bool) -> None:
    body = words(tokens) + delta({}, "stop") + counted(tokens) + DONE
    result = answer(body, exact=True)
    assert result.outcome == "ok"
    assert ("short_of_exact" in result.notes) is short
    assert ("short_of_exact (1 of 1)" in load_figures([result]).notes) is short
    assert "short_of_exact" not in answer(body).notes


def test_the_endpoints_own_fields_demand_it_too(desk: SimpleNamespace) -> None:
    body = desk.whole(words(3) + delta({}, "stop") + counted(3) + DONE)
    endpoint = Endpoint(
        base_url="http://h/v1", api="chat", model="m", extra_body={"ignore_eos": True}
    )
    assert "short_of_exact" in desk.one_answer(body, endpoint=endpoint).notes
    assert "short_of_exact" not in desk.one_answer(body).notes


def test_tokens_that_nobody_counted_are_not_called_short() -> None:
    result = answer(words(3) + delta({}, "length") + DONE, exact=True)
    assert result.notes == ("no_usage",)


def test_time_per_token_leaves_out_reasoning_that_was_never_sent() -> None:
    body = words(100) + delta({}, "stop") + counted(1100, 1000) + DONE
    hidden = answer(body, tokens=2000)
    assert hidden.notes == ("hidden_reasoning",)
    plain = answer(words(100) + delta({}, "stop") + counted(100) + DONE, tokens=2000)
    assert (hidden.streamed_tokens, plain.streamed_tokens) == (100, 100)
    assert tpot_ms(hidden) == tpot_ms(plain) == 10


def test_hidden_reasoning_counts_in_throughput_and_not_in_the_size_of_chunks() -> None:
    body = words(100) + delta({}, "stop") + counted(1100, 1000) + DONE
    result = answer(body, tokens=2000)
    values = load_figures([result]).values
    assert values["output_tokens_mean"] == 1100
    assert values["chunk_tokens_mean"] == 1
    assert values["itl_ms_mean"] == 10
    assert request_figures(result)["prefill_speed_tok_s"] is None


def test_hidden_reasoning_in_a_first_chunk_of_known_size_is_taken_out_once() -> None:
    def chunk(total: int) -> bytes:
        usage = {
            "completion_tokens": total,
            "completion_tokens_details": {"reasoning_tokens": 1000},
        }
        choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
        return event({"choices": [choice], "usage": usage})

    body = b"".join(chunk(1001 + place) for place in range(100)) + delta({}, "stop") + DONE
    result = answer(body, tokens=2000)
    assert result.chunk_tokens_known
    assert tpot_ms(result) == 10


@pytest.mark.parametrize("field", ["reasoning_content", "content"])
def test_reasoning_that_was_sent_is_not_hidden(field: str) -> None:
    thought = b"".join(delta({field: f" t{place}"}) for place in range(50))
    body = thought + words(50) + delta({}, "stop") + counted(100, 50) + DONE
    result = answer(body, tokens=200)
    assert "hidden_reasoning" not in result.notes
    assert result.streamed_tokens == 100


def test_no_reason_is_no_failure_by_itself() -> None:
    assert finish_fault(None) is None
    assert "never sent" in METRICS.get("tpot_ms").formula
