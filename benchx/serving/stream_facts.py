"""What one answer shows of a server's habits: the facts that readiness and the probe rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from benchx.serving.client_fields import REASONING, payload_of, usage_in
from benchx.serving.exchange import Exchange
from benchx.serving.sse import SseError, SseParser

_REASONING = (*REASONING, "reasoning_details")
_DONE = b"[DONE]"


@dataclass
class StreamFacts:
    """One answer, streamed or not, taken apart.

    Attributes:
        events: Events (a whole JSON body counts as one).
        payloads: Chunks that hold generated text, reasoning, tool calls or token ids.
        text: Visible text.
        reasoning: Reasoning text.
        reasoning_field: The name it came under; None when there was none.
        token_ids: Ids that the chunks named; None when they named none.
        role_before_payload: Whether the first chunk held a role and nothing generated.
        usage: The last usage block.
        usage_at: Where it was: `chunk` (own chunk without choices), `last_choice` (beside the
            last choices), `choice` (inside a choice), `x_groq`, `every_chunk`, `body`; None:
            nowhere.
        finish_reason: As given.
        done: Whether `[DONE]` came.
        comments: Comment lines.
        named_events: Names of events that had one.
        error: The error that came in the place of an event, or why the stream is unreadable.
    """

    events: int = 0
    payloads: int = 0
    text: str = ""
    reasoning: str = ""
    reasoning_field: str | None = None
    token_ids: int | None = None
    role_before_payload: bool = False
    usage: Mapping[str, Any] | None = None
    usage_at: str | None = None
    finish_reason: str | None = None
    done: bool = False
    comments: int = 0
    named_events: tuple[str, ...] = ()
    error: str | None = None
    _usages_beside_choices: int = field(default=0, repr=False)

    @property
    def completion_tokens(self) -> int | None:
        """The server's own count of generated tokens."""
        return _count(self.usage, "completion_tokens")

    @property
    def prompt_tokens(self) -> int | None:
        """The server's own count of the prompt."""
        return _count(self.usage, "prompt_tokens")

    @property
    def cached_tokens(self) -> int | None:
        """Cached part of the prompt, from either place that servers put it."""
        details = (self.usage or {}).get("prompt_tokens_details")
        nested = _count(details if isinstance(details, Mapping) else None, "cached_tokens")
        return _count(self.usage, "cached_tokens") if nested is None else nested

    @property
    def tokens_seen(self) -> int:
        """Generated tokens by the best evidence there is: usage, ids, else chunks."""
        counted = self.completion_tokens
        if counted is not None and self.payloads:
            return counted
        return self.payloads if self.token_ids is None else self.token_ids


def facts_of(answer: Exchange) -> StreamFacts:
    """Take an answer apart; an unreadable one has `error` set."""
    facts = StreamFacts()
    for name, data in _events(answer, facts):
        facts.events += 1
        if name:
            facts.named_events += (name,)
        if data.strip() == _DONE:
            facts.done = True
            continue
        _add_event(facts, name, data)
    if answer.error and facts.error is None:
        facts.error = answer.error
    if facts._usages_beside_choices > 1:
        facts.usage_at = "every_chunk"
    return facts


def _events(answer: Exchange, facts: StreamFacts) -> Iterator[tuple[str, bytes]]:
    if not _is_stream(answer):
        if answer.body:
            yield "", answer.body
        return
    parser = SseParser()
    try:
        for _, piece in answer.pieces:
            yield from ((_text(event.name), event.data) for event in parser.feed(piece))
        yield from ((_text(event.name), event.data) for event in parser.close())
    except SseError as error:
        facts.error = str(error)
    facts.comments = parser.comments


def _is_stream(answer: Exchange) -> bool:
    """By its content type, or, where that says something else than JSON, by how it begins."""
    kind = answer.headers.get("content-type", "").lower()
    begins = answer.body.lstrip().startswith((b"data:", b"event:", b":"))
    return "event-stream" in kind or ("json" not in kind and begins)


def _add_event(facts: StreamFacts, name: str, data: bytes) -> None:
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError:
        facts.error = f"not JSON: {_text(data[:80])!r}"
        return
    if not isinstance(chunk, dict):
        facts.error = f"not an object: {_text(data[:80])!r}"
        return
    if name == "error" or chunk.get("error"):
        facts.error = f"error event: {_text(orjson.dumps(chunk.get('error', chunk)))[:200]}"
        return
    listed = chunk.get("choices")
    choices = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    for choice in choices:
        _add_choice(facts, choice)
    usage = usage_in(chunk)
    if usage is not None:
        _add_usage(facts, usage, _place_of(usage, chunk, choices))


def _place_of(
    usage: Mapping[str, Any], chunk: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]
) -> str:
    if usage is not chunk.get("usage"):
        return "choice" if any(usage is one.get("usage") for one in choices) else "x_groq"
    if any("message" in choice for choice in choices):
        return "body"
    return "last_choice" if choices else "chunk"


def _add_usage(facts: StreamFacts, usage: Mapping[str, Any], place: str) -> None:
    facts.usage, facts.usage_at = usage, place
    facts._usages_beside_choices += place == "last_choice"


def _add_choice(facts: StreamFacts, choice: Mapping[str, Any]) -> None:
    """By the rules of the client: what is a token to it is one here."""
    payload, delta = payload_of(choice), choice.get("delta") or choice.get("message")
    fields = delta if isinstance(delta, dict) else {}
    if payload.is_generated:
        facts.payloads += 1
    elif facts.payloads == 0 and "role" in fields:
        facts.role_before_payload = True
    facts.text += payload.visible
    if payload.reasoning:
        facts.reasoning += payload.reasoning
        facts.reasoning_field = next((name for name in _REASONING if fields.get(name)), "content")
    if payload.tokens:
        facts.token_ids = (facts.token_ids or 0) + payload.tokens
    reason = choice.get("finish_reason")
    facts.finish_reason = str(reason) if reason else facts.finish_reason


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _count(block: Mapping[str, Any] | None, name: str) -> int | None:
    value = (block or {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
