"""Salts: what a prompt from a file begins with, so that no cache knows it from another point.

One function per kind of prompt. A salt stands at the very front: a prefix cache compares from
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchx.core.errors import UsageError
from benchx.serving.workloads.base import Draw
from benchx.serving.workloads.prompter import IdPrompter

SALT_TOKENS = 8
"""Token ids of a salt: no two of them are equal by chance."""


def salted(text: str, draw: Draw, name: object) -> str:
    """The text behind a word that occurs in no other point and under no other name."""
    return f"{_word(draw, name)} {text}"


def salted_ids(ids: Sequence[int], draw: Draw, name: object) -> tuple[int, ...]:
    """Token ids behind eight others, of the vocabulary where it is known."""
    prompter = draw.prompter if isinstance(draw.prompter, IdPrompter) else IdPrompter()
    return prompter.join([prompter.make(draw.stream("salt", name), SALT_TOKENS), tuple(ids)])  # type: ignore[return-value]


def salted_messages(
    messages: Sequence[Mapping[str, Any]], draw: Draw, name: object
) -> tuple[Mapping[str, Any], ...]:
    """Messages of which the first begins with a salt; the same one for every turn of a name.

    Raises:
        UsageError: The content of the first one is neither text nor a list of parts.
    """
    first = dict(messages[0])
    content = first.get("content")
    if content is None or isinstance(content, str):
        first["content"] = salted(content or "", draw, name)
    elif isinstance(content, list):
        # A part of its own: the first one may be an image.
        first["content"] = [{"type": "text", "text": _word(draw, name)}, *content]
    else:
        raise UsageError(
            f"the first message has the content {content!r}; expected text or a list of parts",
            hint="`workload.salted: false` sends it as it is",
        )
    return (first, *messages[1:])


def _word(draw: Draw, name: object) -> str:
    return f"[{draw.stream('salt', name).getrandbits(64):016x}]"
