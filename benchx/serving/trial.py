"""One small request, outside of any load: does the server generate at all?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchx.serving.exchange import Exchange, post
from benchx.serving.request import Endpoint, Request
from benchx.serving.stream_facts import StreamFacts, facts_of

TRIAL = Request(index=0, prompt="Count from one to five:", max_tokens=4)
"""A prompt that no workload contains."""

TRIAL_IDS = Request(index=0, prompt=(11, 13, 17, 19, 23, 29), max_tokens=4)
"""The same for servers that run without a tokenizer."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How a small request ended.

    Attributes:
        tokens: Generated tokens that were received; 0 when it did not work.
        status: HTTP status; None when no response began.
        problem: What was wrong, or None.
        answer: All of it.
        facts: The answer taken apart.
    """

    tokens: int
    status: int | None
    problem: str | None
    answer: Exchange
    facts: StreamFacts


def request_body(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """The JSON body of a request, as the load client would send it."""
    body: dict[str, Any] = {"model": endpoint.model, "stream": endpoint.stream}
    if endpoint.api == "chat":
        said = request.messages or ({"role": "user", "content": str(request.prompt)},)
        body["messages"] = [dict(message) for message in said]
    else:
        ids = isinstance(request.prompt, tuple)
        body["prompt"] = list(request.prompt) if ids else request.prompt
    body[endpoint.max_tokens_field] = request.max_tokens
    if endpoint.stream and endpoint.ask_usage:
        body["stream_options"] = {"include_usage": True}
    return body | dict(endpoint.extra_body) | dict(request.extra)


def try_once(endpoint: Endpoint, request: Request, timeout_s: float) -> Trial:
    """Send one request and judge whether tokens came back."""
    return judge(post(endpoint.url, request_body(endpoint, request), timeout_s=timeout_s,
                      endpoint=endpoint))  # fmt: skip


def judge(answer: Exchange) -> Trial:
    """Whether an answer holds generated tokens, and what is wrong if not."""
    facts = facts_of(answer)
    tokens, problem = 0, None
    if answer.status != 200:
        problem = answer.summary()
    elif facts.error:
        problem = facts.error
    elif facts.tokens_seen == 0:
        problem = f"200 without a token ({facts.events} events)"
    else:
        tokens = facts.tokens_seen
    return Trial(tokens=tokens, status=answer.status, problem=problem, answer=answer, facts=facts)
