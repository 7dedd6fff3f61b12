"""How many tokens: one number, or a uniform choice between two that are both written out.

A ratio is deliberately no way to say it: the same number means [L(1-r), L(1+r)] in one load
generator and [L r, L] in another.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from benchx.core.units import UnitError, parse_count

EXPECTED = "a number of tokens, or {kind: uniform, low: 512, high: 1k}"


@dataclass(frozen=True)
class Lengths:
    """Uniform from `low` to `high`, both included; equal ones are one fixed length."""

    low: int
    high: int

    @classmethod
    def of(cls, value: object) -> Self:
        """From plain data; raises UnitError when it is neither a length nor a range."""
        if isinstance(value, Mapping):
            return cls._of_range(value)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise UnitError(value, EXPECTED)
        tokens = parse_count(value)
        if tokens < 1:
            raise UnitError(value, "at least one token")
        return cls(tokens, tokens)

    @classmethod
    def _of_range(cls, value: Mapping[str, Any]) -> Self:
        if set(value) != {"kind", "low", "high"} or value["kind"] != "uniform":
            raise UnitError(dict(value), EXPECTED)
        low, high = parse_count(value["low"]), parse_count(value["high"])
        if not 1 <= low <= high:
            raise UnitError(dict(value), "1 <= low <= high")
        return cls(low, high)

    def draw(self, rng: random.Random) -> int:
        """One length."""
        return rng.randint(self.low, self.high)
