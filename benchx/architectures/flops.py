"""FLOPs of a token: matrix products with the weights, and attention at a context.

A multiply-add counts as two. Conventions are those of the operators: causal attention without the
masked half, KDA prefill in chunks of 64 (arXiv 2510.26692, eq. 13), MLA in the cheaper of its two
forms, expanded or absorbed. What grows with neither product nor pair (norms, activations, the mix
of blocks of attention residuals: below 0.1 % of K3's FLOPs) is left out.
"""

from __future__ import annotations

from benchx.architectures.descriptor import Architecture, Kda
from benchx.architectures.parameters import parameters

CHUNK = 64


def prefill_flops(arch: Architecture, tokens: int, *, prefix: int = 0) -> float:
    """FLOPs of prefilling `tokens` new tokens behind `prefix` cached ones.

    The output head is counted once (only the last token needs it).
    """
    params = parameters(arch)
    head = params.embedding if params.tied else params.head
    products = 2.0 * (tokens * (params.active - head) + head)
    pairs = tokens * prefix + tokens * (tokens + 1) / 2
    attention = _attention_flops(arch, pairs, prefix)
    return products + attention + tokens * _kda_flops(arch, decode=False)


def decode_flops(arch: Architecture, context: int, *, tokens: int = 1) -> float:
    """FLOPs of `tokens` new tokens of one sequence with `context` tokens, themselves included.

    Causal: the last of them sees all of `context`. The output head is counted once a step, as the
    stack computes it: of the last token.
    """
    params = parameters(arch)
    head = params.embedding if params.tied else params.head
    products = 2.0 * (tokens * (params.active - head) + head)
    pairs = tokens * context - tokens * (tokens - 1) / 2
    attention = _attention_flops(arch, pairs, context - tokens)
    return products + attention + tokens * _kda_flops(arch, decode=True)


def _attention_flops(arch: Architecture, pairs: float, prefix: int) -> float:
    """Of so many pairs of one sequence behind `prefix` cached tokens, all full-attention layers.

    MLA expanded: W_UK and W_UV once more for each cached row (the new ones are in the products of
    the active parameters), then the wide pairs. Absorbed: the queries and outputs of the new
    tokens meet the weights instead of their rows, which is as much, then pairs of the latent.
    """
    expanded = pairs * _pair_flops(arch)
    if arch.mla is None:
        return expanded
    mla = arch.mla
    expand = 2.0 * mla.kv_lora * mla.heads * (mla.nope_dim + mla.value_dim)
    return min(expanded + arch.count("mla") * prefix * expand, pairs * _absorbed_flops(arch))


def _pair_flops(arch: Architecture) -> float:
    """Of a query and a key it sees, all full-attention layers: 2 H (width of k + width of v)."""
    if arch.mla is not None:
        width = arch.mla.nope_dim + arch.mla.rope_dim + arch.mla.value_dim
        return 2.0 * arch.count("mla") * arch.mla.heads * width
    if arch.gqa is not None:
        return 4.0 * arch.count("gqa") * arch.gqa.heads * arch.gqa.head_dim
    return 0.0


def _absorbed_flops(arch: Architecture) -> float:
    """The same where MLA attends to the latent: 2 H (2C + R)."""
    if arch.mla is None:
        return 0.0
    width = 2 * arch.mla.kv_lora + arch.mla.rope_dim
    return 2.0 * arch.count("mla") * arch.mla.heads * width


def _kda_flops(arch: Architecture, *, decode: bool) -> float:
    if arch.kda is None:
        return 0.0
    a_layer = arch.kda.heads * (_recurrent(arch.kda) if decode else _chunked(arch.kda))
    return float(arch.count("kda") * a_layer)


def _recurrent(kda: Kda) -> int:
    return 7 * kda.head_dim * kda.value_dim


def _chunked(kda: Kda) -> int:
    key, value = kda.head_dim, kda.value_dim
    return 6 * key * value + CHUNK * (2 * key + value) + CHUNK**2
