"""How prompts begin: what a prefix cache compares first."""

from __future__ import annotations

from collections.abc import Sequence

from benchx.serving.request import Request

_SAME_IDS, _SAME_CHARACTERS = 16, 64
"""Prompts that differ within these share no block of a usual prefix cache."""


def opening(request: Request) -> object:
    """The beginning of a prompt: 16 token ids, or 64 characters."""
    if request.messages is not None:
        return str(request.messages[0].get("content"))[:_SAME_CHARACTERS]
    ids = isinstance(request.prompt, tuple)
    return request.prompt[: _SAME_IDS if ids else _SAME_CHARACTERS]


def differ(requests: Sequence[Request]) -> bool:
    """Whether no two prompts begin alike."""
    openings = [opening(request) for request in requests]
    return len(set(openings)) == len(openings)
