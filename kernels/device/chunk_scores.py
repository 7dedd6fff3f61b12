"""Scores and decays of one chunk for every form of gate: the part of K1 before the inverse.

Each function returns A, M [C, C] in fp32, Kd, Qd, Kr [C, K] in the workspace's dtype, and the
chunk's decay [K]; see `chunk_intra` for what they are.

`A` and `M` need the *difference* G[i] - G[j]; 2^-G alone overflows after a few strongly decaying
tokens. Every pair i > j is split at exactly one level of a binary tree over the chunk, at a
boundary r with j <= r < i, so 2^-|G - G[r]| <= 1 serves both factors and nothing can overflow,
whatever the gate. A gate with a lower bound needs no tree where a chunk's total decay fits fp32's
exponent range twice: then 2^(G[i] - r) 2^(r - G[j]) with r half of the total is one product.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.dot import dot16, dot16_add, narrow, to_bf16, to_dtype


@triton.jit
def _anchor(cum, HALF: tl.constexpr, CHUNK: tl.constexpr, K: tl.constexpr):
    """Each row's `cum` at the last row of the first half of its block of 2 x HALF rows: [C, K]."""
    blocks: tl.constexpr = CHUNK // (2 * HALF)
    tree = tl.reshape(cum, [blocks, 2 * HALF, K])
    middle = (tl.arange(0, 2 * HALF) == HALF - 1)[None, :, None]
    at_middle = tl.sum(tl.where(middle, tree, 0.0), axis=1)
    return tl.reshape(tl.broadcast_to(at_middle[:, None, :], [blocks, 2 * HALF, K]), [CHUNK, K])


@triton.jit
def below(SIZE: tl.constexpr, CHUNK: tl.constexpr):
    """Pairs of a row in the second and a column in the first half of a block of 2 x SIZE."""
    row = tl.arange(0, CHUNK)[:, None]
    col = tl.arange(0, CHUNK)[None, :]
    return (row // (2 * SIZE) == col // (2 * SIZE)) & (row // SIZE > col // SIZE)


@triton.jit
def _split_scores(
    q, k, cum, keys, queries,
    SIZE: tl.constexpr, CHUNK: tl.constexpr, K: tl.constexpr, L2_NORM: tl.constexpr,
):  # fmt: skip
    """Fill in the pairs that one level of the tree separates."""
    shrink = tl.exp2(-tl.abs(cum - _anchor(cum, SIZE, CHUNK, K)))
    ke = narrow(k * shrink, L2_NORM)
    qe = narrow(q * shrink, L2_NORM)
    split = below(SIZE, CHUNK)
    keys = tl.where(split, dot16(ke, tl.trans(ke)), keys)
    return keys, tl.where(split, dot16(qe, tl.trans(ke)), queries)


@triton.jit
def _tree_scores(q, k, cum, CHUNK: tl.constexpr, K: tl.constexpr, L2_NORM: tl.constexpr):
    """A (below the diagonal) and M, both fp32 [C, C], for any decay."""
    row = tl.arange(0, CHUNK)[:, None]
    col = tl.arange(0, CHUNK)[None, :]
    keys = tl.zeros([CHUNK, CHUNK], tl.float32)
    queries = tl.zeros([CHUNK, CHUNK], tl.float32)
    for level in tl.static_range(0, 8):
        if CHUNK >> (level + 1) >= 1:
            keys, queries = _split_scores(
                q, k, cum, keys, queries, CHUNK >> (level + 1), CHUNK, K, L2_NORM
            )
    same = tl.sum(q * k, axis=1)
    return keys, tl.where(row == col, same[:, None], queries)


@triton.jit
def by_tree(
    q, k, log2, CHUNK: tl.constexpr, K: tl.constexpr, L2_NORM: tl.constexpr, KIND: tl.constexpr
):  # fmt: skip
    """For any vector gate, from the log2 decays [C, K]."""
    cum = tl.cumsum(log2, axis=0)
    total = tl.sum(log2, axis=0)
    a, m = _tree_scores(q, k, cum, CHUNK, K, L2_NORM)
    grow = tl.exp2(cum)
    kd = to_dtype(k * grow, KIND)
    qd = to_dtype(q * grow, KIND)
    return a, m, kd, qd, to_dtype(k * tl.exp2(total[None, :] - cum), KIND), tl.exp2(total)


@triton.jit
def centred_sum(log2, CHUNK: tl.constexpr):
    """Cumulative sum over a chunk minus half of its total, fp32 [C, K], by the matrix unit.

    A matrix of +-1/2 sums from the top and from the bottom at once. fp16 twice holds 22 bits of
    each summand. A scan would pass every partial sum through shared memory.
    """
    row = tl.arange(0, CHUNK)[:, None]
    col = tl.arange(0, CHUNK)[None, :]
    sign = tl.where(row >= col, 0.5, -0.5).to(tl.float16)
    high = log2.to(tl.float16)
    low = (log2 - high.to(tl.float32)).to(tl.float16)
    return dot16_add(sign, low, dot16(sign, high))


@triton.jit
def around_middle(log2, CHUNK: tl.constexpr):
    """`centred_sum` and h = 2^(total / 2), whose log2 is that sum's last row."""
    last = tl.arange(0, CHUNK)[:, None] == CHUNK - 1
    offset = centred_sum(log2, CHUNK)
    return offset, tl.exp2(tl.sum(tl.where(last, offset, 0.0), axis=0))


@triton.jit
def by_middle(q, k, offset, h, CHUNK: tl.constexpr, KIND: tl.constexpr):
    """For a chunk whose decay is at most 2^230: around half of it, in one product.

    2^cum = h 2^offset and so on: two exponentials serve the scores, Kd, Qd and Kr. The factors'
    exponents exceed fp16's, so they are bf16. All is rounded as soon as it can be: that frees
    registers.
    """
    row = tl.arange(0, CHUNK)[:, None]
    col = tl.arange(0, CHUNK)[None, :]
    shrink = tl.exp2(offset)
    qs = q * shrink
    qd = to_dtype(qs * h[None, :], KIND)
    ks = k * shrink
    kd = to_dtype(ks * h[None, :], KIND)
    kg = k * tl.exp2(-offset)
    kr = to_dtype(kg * h[None, :], KIND)
    kt = tl.trans(to_bf16(kg))
    # Above the diagonal the products may overflow; nothing there is selected.
    a = tl.where(row > col, dot16(to_bf16(ks), kt), 0.0)
    m = tl.where(row >= col, dot16(to_bf16(qs), kt), 0.0)
    return a, m, kd, qd, kr, h * h


@triton.jit
def by_line(q, k, log2, CHUNK: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr):
    """Where all channels share one decay, log2 [C]."""
    line = tl.cumsum(log2, axis=0)
    row = tl.arange(0, CHUNK)[:, None]
    col = tl.arange(0, CHUNK)[None, :]
    # The difference is <= 0 where it counts; elsewhere it must not overflow before the mask.
    gap = tl.where(row >= col, line[:, None] - line[None, :], 0.0)
    factor = tl.where(row >= col, tl.exp2(gap), 0.0)
    k16 = to_bf16(k)
    m = dot16(to_bf16(q), tl.trans(k16)) * factor
    a = tl.where(row > col, dot16(k16, tl.trans(k16)) * factor, 0.0)
    grow = tl.exp2(line)[:, None]
    total = tl.min(line, axis=0)
    kd = to_dtype(k * grow, KIND)
    qd = to_dtype(q * grow, KIND)
    kr = to_dtype(k * tl.exp2(total - line)[:, None], KIND)
    return a, m, kd, qd, kr, tl.broadcast_to(tl.exp2(total), [K])
