"""What one answer shows of a server's habits: the facts that readiness and the probe rest on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchx.serving.exchange import Exchange
from benchx.serving.sse import SseError, SseParser

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Names under which servers stream what a model thinks."""

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
            last choices), `choice` (inside a choice), `every_chunk`, `body`; None: nowhere.
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
    if "event-stream" not in answer.headers.get("content-type", ""):
        if answer.body:
            yield "", answer.body
        return
    parser = SseParser()
    try:
        for _, piece in answer.pieces:
            yield from ((event.name.decode(), event.data) for event in parser.feed(piece))
        yield from ((event.name.decode(), event.data) for event in parser.close())
    except SseError as error:
        facts.error = str(error)
    facts.comments = parser.comments


def _add_event(facts: StreamFacts, name: str, data: bytes) -> None:
    try:
        chunk = json.loads(data)
    except ValueError:
        facts.error = f"not JSON: {data[:80].decode(errors='replace')!r}"
        return
    if not isinstance(chunk, Mapping):
        facts.error = f"not an object: {data[:80].decode(errors='replace')!r}"
        return
    if name == "error" or chunk.get("error"):
        facts.error = f"error event: {json.dumps(chunk.get('error', chunk))[:200]}"
        return
    choices = [choice for choice in chunk.get("choices") or [] if isinstance(choice, Mapping)]
    for choice in choices:
        _add_choice(facts, choice)
    usage = chunk.get("usage")
    if isinstance(usage, Mapping):
        body = any("message" in choice for choice in choices)
        _add_usage(facts, usage, "body" if body else "last_choice" if choices else "chunk")


def _add_usage(facts: StreamFacts, usage: Mapping[str, Any], place: str) -> None:
    facts.usage, facts.usage_at = usage, place
    facts._usages_beside_choices += place == "last_choice"


def _add_choice(facts: StreamFacts, choice: Mapping[str, Any]) -> None:
    delta = choice.get("delta") or choice.get("message") or {}
    text = choice.get("text") or delta.get("content") or ""
    named = next((name for name in REASONING_FIELDS if delta.get(name)), None)
    ids = choice.get("token_ids") or []
    if text or named or ids or delta.get("tool_calls"):
        facts.payloads += 1
    elif facts.payloads == 0 and "role" in delta:
        facts.role_before_payload = True
    facts.text += text if isinstance(text, str) else ""
    if named:
        facts.reasoning_field = named
        facts.reasoning += delta[named] if isinstance(delta[named], str) else ""
    if ids:
        facts.token_ids = (facts.token_ids or 0) + len(ids)
    facts.finish_reason = choice.get("finish_reason") or facts.finish_reason
    if isinstance(choice.get("usage"), Mapping):
        _add_usage(facts, choice["usage"], "choice")


def _count(block: Mapping[str, Any] | None, name: str) -> int | None:
    value = (block or {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
