"""Load or recompute: when a cached prefix is worth fetching from slower memory.

Prefill time is a quadratic of the tokens, `linear_s x T + quadratic_s x T^2`, which is exact for
its FLOPs: projections, experts and KDA grow with T, causal attention with its square. Loading
moves cache and one state: `latency_s + (state + per_token x T) / bandwidth`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PrefillModel:
    """Seconds of a prefill of T tokens: `fixed_s + linear_s T + quadratic_s T^2`.

    Attributes:
        fixed_s: What a prefill of no token takes.
        linear_s: Seconds a token.
        quadratic_s: Seconds a token squared.
        source: Where it comes from: measured, or bounded by a rate.
    """

    fixed_s: float = 0.0
    linear_s: float
    quadratic_s: float
    source: str

    def seconds(self, tokens: int) -> float:
        """Time of a prefill of `tokens`."""
        return self.fixed_s + self.linear_s * tokens + self.quadratic_s * tokens**2


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What a prefix leaves behind: bytes per token, and one recurrent state."""

    per_token_bytes: float
    state_bytes: float

    def total_bytes(self, tokens: int) -> float:
        """Cache of `tokens` and the state."""
        return self.per_token_bytes * tokens + self.state_bytes


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A place that a cached prefix can be loaded from.

    Attributes:
        name: Word for it.
        bandwidth_gb_s: Towards the device, as one sequence sees it.
        latency_s: Before the first byte.
        source: Where the figures come from.
    """

    name: str
    bandwidth_gb_s: float
    latency_s: float = 0.0
    source: str

    def load_seconds(self, size_bytes: float) -> float:
        """Time to load `size_bytes`."""
        return self.latency_s + size_bytes / (self.bandwidth_gb_s * 1e9)


def kv_throughput_gb_s(size_bytes: float, seconds: float) -> float:
    """KV throughput: bytes left behind / prefill time (arXiv 2604.15039, eq. 1), in GB/s."""
    return size_bytes / seconds / 1e9


def loading_wins_from(tier: Tier, left: Footprint, prefill: PrefillModel) -> int | None:
    """The length in tokens from which on every prefix loads faster than it is computed; or None.

    Where a prefill has a fixed cost, very short prefixes may load faster too; they do not count.
    The positive root of `quadratic T^2 + (linear - per_token / B) T + fixed - state / B - latency`.
    """
    rate = tier.bandwidth_gb_s * 1e9
    square = prefill.quadratic_s
    slope = prefill.linear_s - left.per_token_bytes / rate
    level = prefill.fixed_s - left.state_bytes / rate - tier.latency_s
    if level > 0 and slope >= 0:
        return 1
    root = _largest_root(square, slope, level)
    return None if root is None else max(1, math.ceil(root))


def checkpoint_interval(tier: Tier, left: Footprint, prefill: PrefillModel) -> int | None:
    """Tokens between state checkpoints below which a checkpoint saves less than it costs to load.

    Loading one takes `state / B + latency`; it saves recomputing the tokens since the one before,
    at the linear cost of a token. None when there is no state to keep, or a
    token has no such cost (few, noisy measurements).
    """
    if left.state_bytes == 0 or prefill.linear_s == 0:
        return None
    return max(1, math.ceil(tier.load_seconds(left.state_bytes) / prefill.linear_s))


def sequences_that_fit(memory_bytes: float, weight_bytes: float, sequence_bytes: float) -> int:
    """Whole sequences in what the weights leave free; 0 when the weights alone do not fit."""
    return max(0, math.floor((memory_bytes - weight_bytes) / sequence_bytes))


def _largest_root(square: float, slope: float, level: float) -> float | None:
    """Largest x > 0 where `square x^2 + slope x + level` turns positive for good; None: never."""
    if square == 0:
        if slope <= 0:
            return None
        return max(0.0, -level / slope)
    inside = slope**2 - 4 * square * level
    if inside < 0:
        return 0.0
    return max(0.0, (-slope + math.sqrt(inside)) / (2 * square))
