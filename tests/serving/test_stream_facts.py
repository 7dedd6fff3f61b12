"""What readiness and the probe see of an answer: the same tokens as the client, whatever comes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.serving.exchange import Exchange
from benchx.serving.stream_facts import StreamFacts, facts_of
from benchx.serving.trial import judge

DONE = b"data: [DONE]\n\n"


def answer(body: bytes, kind: str = "text/event-stream") -> Exchange:
    return Exchange(status=200, headers={"content-type": kind}, pieces=((0.1, body),))


def event(**chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(**fields: object) -> bytes:
    return event(choices=[{"index": 0, "delta": fields}])


NAMES = st.sampled_from(
    [
        *(
            "choices",
            "usage",
            "error",
            "delta",
            "message",
            "text",
            "content",
            "token_ids",
            "x_groq",
        ),
        *("reasoning", "reasoning_details", "finish_reason", "tool_calls", "prompt_tokens_details"),
        *("completion_tokens", "cached_tokens"),
    ]
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.floats(-1, 1), st.text(max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=12,
)
CHUNK = st.one_of(
    st.dictionaries(NAMES, ANYTHING, max_size=4),
    st.dictionaries(NAMES, ANYTHING, max_size=4).map(lambda choice: {"choices": [choice]}),
)


@given(CHUNK, st.sampled_from(["text/event-stream", "application/json"]))
def test_no_answer_breaks_what_takes_it_apart(chunk: dict[str, object], kind: str) -> None:
    body = event(**chunk) if "event" in kind else json.dumps(chunk).encode()
    facts = facts_of(answer(body, kind))
    assert facts.tokens_seen >= 0
    assert isinstance(facts.text + facts.reasoning, str)
    assert facts.cached_tokens is None or facts.cached_tokens == int(facts.cached_tokens)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"event: \xff\ndata: {}\n\n", None),
        (b"data: [" + 100_000 * b"[" + b"\n\n", "not JSON"),
        (b"data: 1\n\n", "not an object"),
    ],
)
def test_odd_bytes_are_told_and_break_nothing(body: bytes, words: str | None) -> None:
    error = facts_of(answer(body)).error
    assert (error is None) if words is None else words in str(error)


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": "hm"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"reasoning_details": [{"text": "hm"}]},
    ],
)
def test_a_server_that_only_thinks_generates(fields: dict[str, object]) -> None:
    trial = judge(answer(delta(role="assistant", content="") + 4 * delta(**fields) + DONE))
    assert (trial.problem, trial.tokens) == (None, 4)
    assert trial.facts.reasoning == "hmhmhmhm"
    assert trial.facts.role_before_payload


@pytest.mark.parametrize("kind", ["Text/Event-Stream", "text/plain", "application/octet-stream"])
def test_a_stream_is_one_under_any_content_type_but_json(kind: str) -> None:
    assert judge(answer(b": wait\n\n" + delta(content="a") + DONE, kind)).tokens == 1


def test_usage_under_a_vendors_own_name_is_found() -> None:
    body = delta(content="a") + event(choices=[], x_groq={"usage": {"completion_tokens": 3}})
    facts: StreamFacts = facts_of(answer(body))
    assert (facts.completion_tokens, facts.usage_at) == (3, "x_groq")
