"""Bytes that a sequence leaves in memory: cache that grows with tokens, and recurrent state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchx.architectures.descriptor import Architecture
from benchx.core.errors import UsageError

ITEM_BYTES: Mapping[str, int] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3": 1,
    "fp8": 1,
}
"""Bytes of one element; `fp8` is `float8_e4m3`."""


@dataclass(frozen=True, kw_only=True)
class CacheFormat:
    """How cache and state are kept.

    Attributes:
        cache_dtype: Of what grows with tokens.
        state_dtype: Of the recurrent state.
        conv_dtype: Of the short convolution's window.
        draft_tokens: Speculative tokens; each keeps one more tap of every window.
    """

    cache_dtype: str = "bfloat16"
    state_dtype: str = "float32"
    conv_dtype: str = "bfloat16"
    draft_tokens: int = 0

    def __post_init__(self) -> None:
        for name in (self.cache_dtype, self.state_dtype, self.conv_dtype):
            if name not in ITEM_BYTES:
                raise UsageError(f"unknown dtype {name!r}; known: {', '.join(ITEM_BYTES)}")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """How a model is spread over GPUs.

    Attributes:
        tensor: Ranks that split heads (TP).
        context: Of those, ranks that split the cached tokens in decode (DCP).
        expert: Ranks that split the routed experts (EP).
    """

    tensor: int = 1
    context: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        if min(self.tensor, self.context, self.expert) < 1:
            raise UsageError("tensor, context and expert ranks must be at least 1")
        if self.tensor % self.context:
            raise UsageError(
                f"{self.context} context ranks do not divide {self.tensor} tensor ranks"
            )


def check_ranks(arch: Architecture, ranks: Ranks) -> None:
    """Raise UsageError where heads or experts can't be spread over so many ranks."""
    heads = {shape.heads for shape in (arch.mla, arch.gqa, arch.kda) if shape is not None}
    uneven = [count for count in sorted(heads) if count % ranks.tensor]
    if uneven:
        raise UsageError(
            f"{ranks.tensor} tensor ranks do not divide the {uneven[0]} heads of {arch.name}",
            hint="name tensor ranks that do (--tp); other GPUs hold replicas or experts (--ep)",
        )
    experts = arch.moe.experts if arch.moe is not None else 0
    if ranks.expert > max(1, experts):
        raise UsageError(f"{ranks.expert} expert ranks; {arch.name} has {experts} experts a layer")


def cache_bytes_per_token(arch: Architecture, form: CacheFormat) -> int:
    """Bytes that one token leaves in all layers together.

    MLA: layers x (C + R) values; GQA: layers x 2 x kv_heads x head_dim; KDA: none.
    """
    values = 0
    if arch.mla is not None:
        values = arch.count("mla") * (arch.mla.kv_lora + arch.mla.rope_dim)
    elif arch.gqa is not None:
        values = arch.count("gqa") * 2 * arch.gqa.kv_heads * arch.gqa.head_dim
    return values * ITEM_BYTES[form.cache_dtype]


def state_bytes_per_sequence(arch: Architecture, form: CacheFormat) -> int:
    """Bytes of recurrent state of one sequence, or of one checkpoint of it; 0 without KDA.

    Layers x (H K V values of state + (taps - 1 + draft tokens) x H (2K + V) values of window).
    """
    kda = arch.kda
    if kda is None:
        return 0
    recurrent = kda.heads * kda.head_dim * kda.value_dim * ITEM_BYTES[form.state_dtype]
    taps = kda.conv - 1 + form.draft_tokens
    window = taps * kda.heads * (2 * kda.head_dim + kda.value_dim) * ITEM_BYTES[form.conv_dtype]
    return arch.count("kda") * (recurrent + window)


def sequence_bytes(
    arch: Architecture, form: CacheFormat, tokens: int, *, checkpoints: int = 1
) -> int:
    """Cache of `tokens` tokens and `checkpoints` copies of the state."""
    state = checkpoints * state_bytes_per_sequence(arch, form)
    return tokens * cache_bytes_per_token(arch, form) + state


def rank_cache_bytes_per_token(arch: Architecture, form: CacheFormat, ranks: Ranks) -> float:
    """Bytes per token on one rank.

    MLA's latent has no heads to split: every tensor rank holds all of it unless context ranks
    divide the tokens. GQA splits its kv heads, and replicates them beyond their number.
    """
    total = cache_bytes_per_token(arch, form)
    if arch.gqa is not None:
        return total / min(ranks.tensor, arch.gqa.kv_heads * ranks.context)
    return total / ranks.context


def rank_state_bytes(arch: Architecture, form: CacheFormat, ranks: Ranks) -> float:
    """Bytes of state of one sequence on one rank: its heads are split over the tensor ranks."""
    return state_bytes_per_sequence(arch, form) / ranks.tensor
