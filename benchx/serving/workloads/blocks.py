"""Prompts from block hashes: equal hashes at the front of two prompts are equal tokens.

Traces that may not show their text give a hash per block of tokens instead (512 in Mooncake's, 64
in recordings of coding agents). Each hash becomes the same made-up block wherever it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from benchx.core.errors import UsageError
from benchx.serving.workloads.base import Draw
from benchx.serving.workloads.prompter import Prompt


class Blocks:
    """Makes prompts of a trace.

    Args:
        draw: Where the tokens come from; the salt is part of it, so points share no block.
        block_tokens: Tokens of a block.
        scope: Within which a hash means the same block.
    """

    def __init__(self, draw: Draw, block_tokens: int, scope: str = "") -> None:
        if block_tokens < 1:
            raise UsageError(f"blocks of {block_tokens} tokens; expected at least 1")
        self._draw, self._tokens, self._scope = draw, block_tokens, scope
        self._block = lru_cache(maxsize=4096)(self._make)

    def prompt(self, hashes: Sequence[object], tokens: int, name: object) -> Prompt:
        """A prompt of exactly `tokens` tokens that begins with the full blocks among `hashes`.

        Args:
            hashes: One per block; the last one may stand for a part of a block.
            tokens: Tokens in all.
            name: Of the request: decides what follows after the full blocks.
        """
        prompts = self._draw.prompts()
        full = list(hashes)[: tokens // self._tokens]
        start = prompts.join([self._block(str(one)) for one in full])
        rest = hashes[len(full)] if len(full) < len(hashes) else name
        return prompts.make(self._draw.stream("tail", self._scope, rest), tokens, after=start)

    def _make(self, one: str) -> Prompt:
        return self._draw.prompts().make(self._draw.stream("block", self._scope, one), self._tokens)
