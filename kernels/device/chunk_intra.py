"""K1 of chunked linear attention: everything that does not need the state, one program per chunk.

For a chunk of C tokens and one head (notation of arXiv 2510.26692, section 3; G is the inclusive
cumulative log2-decay inside the chunk, `x * y` is elementwise):

    A[i,j] = sum_c k[i,c] k[j,c] 2^(G[i,c] - G[j,c])          i > j
    M[i,j] = scale * sum_c q[i,c] k[j,c] 2^(G[i,c] - G[j,c])  i >= j
    X      = (I + diag(beta) A)^-1 diag(beta)
    Kd = k * 2^G     Qd = scale * q * 2^G     Y = M X     Z = X^T (k * 2^(G_last - G))

so that K2 is left with R = V - Kd S, o = Qd S + Y R and S <- diag(2^G_last) S + Z^T R. The usual
split stores X Kd and X V instead. Then 16-bit roundings land on rows that nearly cancel when keys
repeat (the sum over a chunk telescopes); folding X into Y and Z cancels in fp32 first, needs no V
in K1, and moves a seventh fewer bytes.

`A` and `M` need the *difference* G[i] - G[j]; 2^-G alone overflows after a few strongly decaying
tokens. Every pair i > j is split at exactly one level of a binary tree over the chunk, at a
boundary r with j <= r < i, so 2^-|G - G[r]| <= 1 serves both factors and nothing can overflow,
whatever the gate. A gate with a lower bound needs no tree where a chunk's total decay fits fp32's
exponent range twice: then 2^(G[i] - r) 2^(r - G[j]) with r half of the total is one product.

The inverse is built by the same tree: with X inverting the diagonal blocks of size b, X - X L_b X
inverts those of size 2b (L_b: the part of L below them). Its entries stay within [-1, 1] for
normalised keys, since every partial product of (I - beta k k^T) is a contraction; a Neumann
series, whose powers grow like binomials for equal keys, overflows fp16 there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.dot import dot16, dot_wide, to_bf16
from benchx_kernels.device.gates import log2_decay


@triton.jit
def locate_chunk(cu_seqlens, slot, n_seqs, CHUNK: tl.constexpr):
    """The sequence and chunk of a slot: sequence n owns slots from cu[n] // C + n on.

    That offset needs no prefix sum over chunk counts (so no host sync and no extra kernel), and
    ceil(len / C) <= cu[n+1] // C - cu[n] // C + 1 keeps the ranges apart.
    """
    low = 0
    high = n_seqs
    while high - low > 1:
        middle = (low + high) // 2
        first = tl.load(cu_seqlens + middle).to(tl.int64) // CHUNK + middle
        low = tl.where(first <= slot, middle, low)
        high = tl.where(first <= slot, high, middle)
    start = tl.load(cu_seqlens + low).to(tl.int64)
    end = tl.load(cu_seqlens + low + 1).to(tl.int64)
    begin = start + (slot - (start // CHUNK + low)) * CHUNK
    return begin, end


@triton.jit
def _anchor(cum, HALF: tl.constexpr, CHUNK: tl.constexpr, K: tl.constexpr):
    """Each row's `cum` at the last row of the first half of its block of 2 x HALF rows: [C, K]."""
    blocks: tl.constexpr = CHUNK // (2 * HALF)
    tree = tl.reshape(cum, [blocks, 2 * HALF, K])
    middle = (tl.arange(0, 2 * HALF) == HALF - 1)[None, :, None]
    at_middle = tl.sum(tl.where(middle, tree, 0.0), axis=1)
    return tl.reshape(tl.broadcast_to(at_middle[:, None, :], [blocks, 2 * HALF, K]), [CHUNK, K])


@triton.jit
def _narrow(x, L2_NORM: tl.constexpr):
    """16 bits for values of at most 1 in magnitude: fp16, three bits more than bf16."""
    if L2_NORM:
        return x.to(tl.float16)
    else:
        return to_bf16(x)


@triton.jit
def _below(SIZE: tl.constexpr, CHUNK: tl.constexpr):
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
    ke = _narrow(k * shrink, L2_NORM)
    qe = _narrow(q * shrink, L2_NORM)
    split = _below(SIZE, CHUNK)
    keys = tl.where(split, dot16(ke, tl.trans(ke)), keys)
    return keys, tl.where(split, dot16(qe, tl.trans(ke)), queries)


@triton.jit
def _scores(q, k, cum, CHUNK: tl.constexpr, K: tl.constexpr, L2_NORM: tl.constexpr):
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
def _inverse(lower, CHUNK: tl.constexpr):
    """(I + lower)^-1 for a strictly lower triangular fp32 [C, C]; entries within [-1, 1]."""
    row = tl.arange(0, CHUNK)[:, None]
    col = tl.arange(0, CHUNK)[None, :]
    inverse = tl.where(row == col, 1.0, tl.where(_below(1, CHUNK), -lower, 0.0))
    for level in tl.static_range(1, 8):
        if (1 << level) < CHUNK:
            part = tl.where(_below(1 << level, CHUNK), lower, 0.0).to(tl.float16)
            half = inverse.to(tl.float16)
            inverse -= dot16(half, dot16(part, half).to(tl.float16))
    return inverse


@triton.jit
def _vector_gate(
    g, a_log, dt_bias, at, inside, head, lower_bound, K: tl.constexpr, GATE: tl.constexpr
):
    """Log2 decay of each token and channel [C, K].

    A padded row must not decay, since the chunk's total is what the state is multiplied with; a
    learned gate shuts at -inf.
    """
    if GATE <= 1:
        channel = tl.arange(0, K)
        raw = tl.load(g + at, mask=inside[:, None], other=-float("inf")).to(tl.float32)
        rate = tl.load(a_log + head)
        bias = tl.load(dt_bias + head * K + channel)
        return log2_decay(raw, rate, bias[None, :], lower_bound, GATE)
    else:
        raw = tl.load(g + at, mask=inside[:, None], other=0.0).to(tl.float32)
        return log2_decay(raw, 0.0, 0.0, lower_bound, GATE)


@triton.jit
def _rows(x, at, inside, L2_NORM: tl.constexpr, scale):
    """Rows of q or k, over sqrt(sum(x^2) + 1e-6) if asked, times a factor; 0 beyond the end."""
    tile = tl.load(x + at, mask=inside[:, None], other=0.0).to(tl.float32)
    if L2_NORM:
        return tile * (tl.rsqrt(tl.sum(tile * tile, axis=1) + 1e-6) * scale)[:, None]
    else:
        return tile * scale


@triton.jit
def _by_tree(q, k, log2, CHUNK: tl.constexpr, K: tl.constexpr, L2_NORM: tl.constexpr):
    """A, M, Kd, Qd, Kr and the chunk's decay for any vector gate."""
    cum = tl.cumsum(log2, axis=0)
    total = tl.sum(log2, axis=0)
    a, m = _scores(q, k, cum, CHUNK, K, L2_NORM)
    grow = tl.exp2(cum)
    return a, m, k * grow, q * grow, k * tl.exp2(total[None, :] - cum), tl.exp2(total)


@triton.jit
def _by_middle(q, k, log2, CHUNK: tl.constexpr, TF32: tl.constexpr):
    """`_by_tree` for a chunk whose decay is at most 2^230: around half of it, in one product.

    With h = 2^(total / 2), 2^cum = h 2^(cum - total / 2) and so on: two exponentials serve the
    scores, Kd, Qd and Kr.
    """
    row = tl.arange(0, CHUNK)[:, None]
    col = tl.arange(0, CHUNK)[None, :]
    offset = tl.cumsum(log2, axis=0)
    half = 0.5 * tl.sum(log2, axis=0)
    offset -= half[None, :]
    shrink = tl.exp2(offset)
    ks = k * shrink
    qs = q * shrink
    kg = k * tl.exp2(-offset)
    # Above the diagonal the products may overflow; nothing there is selected.
    a = tl.where(row > col, dot_wide(ks, tl.trans(kg), TF32), 0.0)
    m = tl.where(row >= col, dot_wide(qs, tl.trans(kg), TF32), 0.0)
    h = tl.exp2(half)
    return a, m, ks * h[None, :], qs * h[None, :], kg * h[None, :], h * h


@triton.jit
def _by_line(q, k, line, CHUNK: tl.constexpr, K: tl.constexpr):
    """`_by_tree` where all channels share one cumulative decay `line` [C]."""
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
    kr = k * tl.exp2(total - line)[:, None]
    return a, m, k * grow, q * grow, kr, tl.broadcast_to(tl.exp2(total), [K])


@triton.jit
def _fold(a, m, kr, logit, inside, CHUNK: tl.constexpr, L2_NORM: tl.constexpr):
    """Y = M X and Z = X^T Kr, with X = (I + diag(beta) A)^-1 diag(beta)."""
    strength = tl.where(inside, 1.0 / (1.0 + tl.exp2(-logit * 1.4426950408889634)), 0.0)
    x = _inverse(a * strength[:, None], CHUNK) * strength[None, :]
    x16 = _narrow(x, L2_NORM)
    y = dot16(_narrow(m, L2_NORM), x16)
    return y, dot16(tl.trans(x16), _narrow(kr, L2_NORM))


@triton.jit(do_not_specialize=["n_seqs", "n_slots", "heads"])
def chunk_intra(
    q, k, g, beta, a_log, dt_bias, cu_seqlens,
    kd, qd, z, y, decay,
    scale, lower_bound, n_seqs, n_slots, heads,
    CHUNK: tl.constexpr, K: tl.constexpr, GATE: tl.constexpr, DELTA: tl.constexpr,
    L2_NORM: tl.constexpr, NARROW: tl.constexpr, TF32: tl.constexpr,
):  # fmt: skip
    """One chunk of one head. Inputs token-major [T, H, *]; workspace [H, slots, C, *] bf16."""
    head = tl.program_id(0)
    slot = tl.program_id(1).to(tl.int64)
    begin, end = locate_chunk(cu_seqlens, slot, n_seqs, CHUNK)
    if begin >= end:
        return
    tokens = begin + tl.arange(0, CHUNK)
    inside = tokens < end
    channel = tl.arange(0, K)
    at = (tokens * heads + head)[:, None] * K + channel[None, :]
    key = _rows(k, at, inside, L2_NORM, 1.0)
    query = _rows(q, at, inside, L2_NORM, scale)

    if GATE <= 2:
        log2 = _vector_gate(g, a_log, dt_bias, at, inside, head, lower_bound, K, GATE)
        if NARROW:
            a, m, kd_tile, qd_tile, kr, total = _by_middle(query, key, log2, CHUNK, TF32)
        else:
            a, m, kd_tile, qd_tile, kr, total = _by_tree(query, key, log2, CHUNK, K, L2_NORM)
    else:
        line = tl.zeros([CHUNK], tl.float32)
        if GATE == 3:
            line = tl.load(g + tokens * heads + head, mask=inside, other=0.0).to(tl.float32)
            line = tl.cumsum(line * 1.4426950408889634, axis=0)
        a, m, kd_tile, qd_tile, kr, total = _by_line(query, key, line, CHUNK, K)

    tile = head * n_slots + slot
    rows = tile * CHUNK + tl.arange(0, CHUNK)
    wide = rows[:, None] * K + channel[None, :]
    square = rows[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    tl.store(qd + wide, to_bf16(qd_tile))
    tl.store(decay + tile * K + channel, total)
    if DELTA:
        tl.store(kd + wide, to_bf16(-kd_tile))  # K2 adds it
        logit = tl.load(beta + tokens * heads + head, mask=inside, other=0.0).to(tl.float32)
        m, kr = _fold(a, m, kr, logit, inside, CHUNK, L2_NORM)
    tl.store(y + square, to_bf16(m))
    tl.store(z + wide, to_bf16(kr))
