"""The fields of a chunk or answer, whatever a server made of them: wrong types read as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from benchx.serving.request import Usage

REASONING = ("reasoning_content", "reasoning", "thinking")
"""Names under which servers send reasoning; the first that holds text counts (some send two)."""

_TOOLS = ("tool_calls", "function_call", "refusal", "audio")


class Payload(NamedTuple):
    """What one choice of a chunk holds.

    Attributes:
        visible: Text that is not reasoning.
        reasoning: Reasoning text.
        is_tool: Whether there is part of a tool call (or audio, or a refusal).
        tokens: Token ids listed in it; 0 when there are none.
    """

    visible: str = ""
    reasoning: str = ""
    is_tool: bool = False
    tokens: int = 0

    @property
    def is_generated(self) -> bool:
        """Whether there is anything that the model generated."""
        return bool(self.visible or self.reasoning or self.is_tool or self.tokens)


def payload_of(choice: Mapping[str, Any]) -> Payload:
    """What a choice holds, of either API, streamed (`delta`) or not (`message`)."""
    ids = choice.get("token_ids")
    tokens = len(ids) if isinstance(ids, list) else 0
    text = choice.get("text")
    if isinstance(text, str):
        reasoning = choice.get("reasoning_content")
        return Payload(text, reasoning if isinstance(reasoning, str) else "", tokens=tokens)
    delta = choice.get("delta") or choice.get("message")
    if not isinstance(delta, dict):
        return Payload(tokens=tokens)
    content = delta.get("content")
    if content and len(delta) == 1 and isinstance(content, str):  # most chunks of most servers
        return Payload(content, tokens=tokens)
    visible, thought = (content, "") if isinstance(content, str) else _parts(content)
    reasoning = thought or _reasoning(delta)
    return Payload(visible, reasoning, any(delta.get(name) for name in _TOOLS), tokens)


def _parts(content: object) -> tuple[str, str]:
    """Visible and reasoning text of a list of content parts."""
    visible, reasoning = "", ""
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        thinking, text = part.get("thinking"), part.get("text")
        if isinstance(thinking, list):
            reasoning += _parts(thinking)[0]
        elif isinstance(thinking, str):
            reasoning += thinking
        if isinstance(text, str):
            visible += text
    return visible, reasoning


def _reasoning(delta: Mapping[str, Any]) -> str:
    for name in REASONING:
        text = delta.get(name)
        if isinstance(text, str) and text:
            return text
    details = delta.get("reasoning_details")
    texts = [
        part.get("text") or part.get("summary")
        for part in (details if isinstance(details, list) else ())
        if isinstance(part, dict)
    ]
    return "".join(text for text in texts if isinstance(text, str))


def usage_in(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The usage object of a chunk: on top, within a choice (Moonshot), or under `x_groq`."""
    found = chunk.get("usage")
    if isinstance(found, dict):
        return found
    choices, vendor = chunk.get("choices"), chunk.get("x_groq")
    inner = [*choices[:1]] if isinstance(choices, list) else []
    for holder in (*inner, vendor):
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            usage: dict[str, Any] = holder["usage"]
            return usage
    return None


def usage_of(found: Mapping[str, Any]) -> Usage:
    """The counts of a usage object; what is no count is absent."""
    prompt = found.get("prompt_tokens_details")
    completion = found.get("completion_tokens_details")
    prompt = prompt if isinstance(prompt, dict) else {}
    completion = completion if isinstance(completion, dict) else {}
    cached = (
        prompt.get("cached_tokens"),
        found.get("cached_tokens"),
        found.get("prompt_cache_hit_tokens"),
    )
    cost = found.get("cost")
    return Usage(
        prompt_tokens=count_of(found.get("prompt_tokens")),
        completion_tokens=count_of(found.get("completion_tokens")),
        cached_tokens=next((n for n in map(count_of, cached) if n is not None), None),
        reasoning_tokens=count_of(
            completion.get("reasoning_tokens", found.get("reasoning_tokens")),
        ),
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )


def count_of(value: object) -> int | None:
    """A whole number from 0 on; None for everything else."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and value >= 0 else None
