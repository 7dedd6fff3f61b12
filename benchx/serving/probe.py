"""`benchx probe`: asks a server a dozen small questions and keeps every answer byte for byte."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchx.core.errors import RunFailed
from benchx.serving.engines.readiness import root_url
from benchx.serving.exchange import Exchange, get, post
from benchx.serving.request import Api, Endpoint, Request
from benchx.serving.scrape import Scraper
from benchx.serving.stream_facts import StreamFacts, facts_of
from benchx.serving.trial import TRIAL_IDS, request_body
from benchx.serving.workloads.prompter import COMMON_WORDS

OUTPUT_TOKENS = 16
_LONG_WORDS = 450
"""Several blocks of a usual prefix cache, and within any context."""

_STREAM_USAGE = {"include_usage": True}
_CHUNK_USAGE = {"include_usage": True, "continuous_usage_stats": True}
_TRANSFORMERS_EXACT = (
    f'{{"min_new_tokens":{OUTPUT_TOKENS},"max_new_tokens":{OUTPUT_TOKENS},"eos_token_id":-1}}'
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One question's answer, raw and taken apart."""

    exchange: Exchange
    facts: StreamFacts

    @property
    def generated(self) -> bool:
        """Whether it is a 200 with tokens in it."""
        return self.exchange.ok and not self.facts.error and self.facts.tokens_seen > 0

    @property
    def refused(self) -> bool:
        """Whether the server said that the request is wrong."""
        return self.exchange.status is not None and 400 <= self.exchange.status < 500

    @property
    def words(self) -> str:
        """What the server said, in one line, when it did not generate."""
        if self.exchange.status == 200 and self.facts.error:
            return self.facts.error
        return self.exchange.summary()


@dataclass(frozen=True, kw_only=True)
class Answers:
    """All answers of one API.

    Attributes:
        endpoint: As asked.
        by_name: Question -> answer.
        metrics_url: Where the server tells metrics that benchx knows; None: nowhere usual.
    """

    endpoint: Endpoint
    by_name: Mapping[str, Answer] = field(default_factory=dict)
    metrics_url: str | None = None

    def __getitem__(self, name: str) -> Answer:
        return self.by_name[name]

    def get(self, name: str) -> Answer | None:
        """The answer, or None when that was not asked."""
        return self.by_name.get(name)


def models(endpoint: Endpoint, *, timeout_s: float = 15) -> tuple[str, ...]:
    """Names of the models that the server lists; empty when it lists none."""
    answer = get(endpoint.at("/models"), timeout_s=timeout_s, endpoint=endpoint)
    listed = answer.json()
    entries = listed.get("data") if answer.ok and isinstance(listed, dict) else None
    found = [one.get("id") for one in entries or () if isinstance(one, dict)]
    return tuple(name for name in found if isinstance(name, str))


def choose_api(endpoint: Endpoint, *, timeout_s: float) -> Endpoint:
    """The endpoint with the first API that generates: completions, then chat.

    Raises:
        RunFailed: Neither does, with what both answered.
    """
    said = []
    for api in ("completions", "chat"):
        candidate = replace(endpoint, api=api)
        answer = _ask(candidate, _body(candidate, _short()), timeout_s)
        if answer.generated:
            return candidate
        said.append(f"{api}: {answer.words}")
    raise RunFailed(f"{endpoint.base_url} does not generate ({'; '.join(said)})")


def ask_all(
    endpoint: Endpoint,
    *,
    timeout_s: float,
    on_question: Callable[[str], None] | None = None,
) -> Answers:
    """Every question, one after the other.

    Args:
        endpoint: The server with the API to ask.
        timeout_s: For each question.
        on_question: Called with the name of each question before it is asked.
    """
    answers: dict[str, Answer] = {}

    def ask(questions: Mapping[str, Mapping[str, Any]]) -> None:
        for name, body in questions.items():
            if on_question is not None:
                on_question(name)
            answers[name] = _ask(endpoint, body, timeout_s)

    bare = _body(endpoint, _short())
    ask({"bare": bare, "usage": bare | {"stream_options": _STREAM_USAGE}})
    # Chunks need not be tokens: where counts can be had, the other questions ask for them too.
    counted = {"stream_options": _STREAM_USAGE} if answers["usage"].generated else {}
    ask(_questions(endpoint, bare | counted, _body(endpoint, _long()) | counted))
    if on_question is not None:
        on_question("metrics")
    return Answers(endpoint=endpoint, by_name=answers, metrics_url=_metrics_url(endpoint))


def _metrics_url(endpoint: Endpoint) -> str | None:
    """The usual address, when it answers with names that benchx knows."""
    scraper = Scraper(root_url(endpoint.base_url, "/metrics"), endpoint=endpoint)
    reading = scraper.poll()
    return scraper.url if reading is not None and reading.values else None


def _ask(endpoint: Endpoint, body: Mapping[str, Any], timeout_s: float) -> Answer:
    exchange = post(endpoint.url, body, timeout_s=timeout_s, endpoint=endpoint)
    return Answer(exchange=exchange, facts=facts_of(exchange))


def _questions(
    endpoint: Endpoint, short: Mapping[str, Any], long: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """Question -> body, in order; the long prompt is asked twice."""
    asked: dict[str, Mapping[str, Any]] = {
        "chunk_usage": {**short, "stream_options": _CHUNK_USAGE},
        "whole": {key: value for key, value in short.items() if key != "stream_options"}
        | {"stream": False},
        "ignore_eos": {**short, "ignore_eos": True},
        "generation_config": {**short, "generation_config": _TRANSFORMERS_EXACT},
        "unknown_field": {**short, "benchx_no_such_field": 1},
        "first": long,
        "again": long,
    }
    if endpoint.api == "completions":
        asked["ids"] = {**short, "prompt": list(TRIAL_IDS.prompt)}
        asked["ids_back"] = {**short, "return_token_ids": True}
    else:
        renamed = {key: value for key, value in short.items() if key != endpoint.max_tokens_field}
        asked["max_completion_tokens"] = renamed | {"max_completion_tokens": OUTPUT_TOKENS}
    return asked


def _body(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    return request_body(replace(endpoint, stream=True, ask_usage=False), request)


def _short() -> Request:
    return Request(index=0, prompt="List the first ten prime numbers:", max_tokens=OUTPUT_TOKENS)


def _long() -> Request:
    """New words in every probe: only the second question may find them in a cache."""
    words = random.SystemRandom().choices(COMMON_WORDS, k=_LONG_WORDS)
    return Request(index=0, prompt=" ".join(words), max_tokens=OUTPUT_TOKENS)


def api_of(word: str) -> Api | None:
    """The API that a word names; None for `auto`."""
    named: Mapping[str, Api | None] = {"completions": "completions", "chat": "chat", "auto": None}
    return named[word]
