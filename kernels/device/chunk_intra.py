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

With normalised keys all of these are within [-1, 1] (Z and Y are derivatives of the state and the
outputs by V, and the recurrence contracts), so fp16 holds them to three bits more than bf16.

The inverse is built by a binary tree: with X inverting the diagonal blocks of size b, X - X L_b X
inverts those of size 2b (L_b: the part of L below them). Its entries stay within [-1, 1] for
normalised keys, since every partial product of (I - beta k k^T) is a contraction; a Neumann
series, whose powers grow like binomials for equal keys, overflows fp16 there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.chunk_scores import around_middle, below, by_line, by_middle, by_tree
from benchx_kernels.device.dot import dot16, identity, negative, to_dtype
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
def tiles(work, tile, CHUNK: tl.constexpr, K: tl.constexpr, DELTA: tl.constexpr):
    """Pointers to Qd, Z [C, K], Y [C, C] and, for the delta rule, -Kd of one chunk.

    The workspace is [H, slots, C ((2 + DELTA) K + C)]: one allocation, and one place in
    memory for what is read together.
    """
    base = work + tile * (CHUNK * ((2 + DELTA) * K + CHUNK))
    return base, base + CHUNK * K, base + 2 * CHUNK * K, base + CHUNK * (2 * K + CHUNK)


@triton.jit
def _inverse(lower, CHUNK: tl.constexpr):
    """(I + lower)^-1 for a strictly lower triangular fp32 [C, C]; entries within [-1, 1].

    X is block diagonal at every level, so X L_b X is a part of X L X: the left operand L is the
    same for all levels, and what does not belong to one is masked afterwards.
    """
    row = tl.arange(0, CHUNK)[:, None]
    col = tl.arange(0, CHUNK)[None, :]
    inverse = tl.where(row == col, 1.0, tl.where(below(1, CHUNK), -lower, 0.0))
    whole = lower.to(tl.float16)
    for level in tl.static_range(1, 8):
        if (1 << level) < CHUNK:
            half = inverse.to(tl.float16)
            product = dot16(half, dot16(whole, half).to(tl.float16))
            inverse -= tl.where(below(1 << level, CHUNK), product, 0.0)
    return inverse


@triton.jit
def _raw_gate(g, at, line, inside, GATE: tl.constexpr):
    """g as it is stored, [C, K] or [C].

    A padded row must not decay, since the chunk's total is what the state is multiplied with; a
    learned gate shuts at -inf.
    """
    if GATE <= 1:
        return tl.load(g + at, mask=inside[:, None], other=-float("inf"))
    elif GATE == 2:
        return tl.load(g + at, mask=inside[:, None], other=0.0)
    elif GATE == 3:
        return tl.load(g + line, mask=inside, other=0.0)
    else:
        return tl.zeros_like(line)


@triton.jit
def _add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def _rows(
    q_tile, k_tile, scale, CHUNK: tl.constexpr, L2_NORM: tl.constexpr, MOVE: tl.constexpr
):  # fmt: skip
    """Rows of scale q and k in fp32, each over sqrt(sum(x^2) + 1e-6) first if asked.

    MOVE widens 16 bits by the matrix unit, as I x, which is exact: so they arrive in the layout of
    the cumulative decays, where another product leaves those. One reduction finds both norms.
    """
    q = q_tile.to(tl.float32)
    k = k_tile.to(tl.float32)
    if MOVE and q_tile.dtype != tl.float32:
        q = dot16(identity(CHUNK, q_tile.dtype), q_tile)
        k = dot16(identity(CHUNK, k_tile.dtype), k_tile)
    if L2_NORM:
        q_norm, k_norm = tl.reduce((q * q, k * k), 1, _add_pairs)
        q = q * (tl.rsqrt(q_norm + 1e-6) * scale)[:, None]
        return q, k * tl.rsqrt(k_norm + 1e-6)[:, None]
    else:
        return q * scale, k


@triton.jit
def _decayed(
    q, k, log2, CHUNK: tl.constexpr, K: tl.constexpr, GATE: tl.constexpr,
    L2_NORM: tl.constexpr, NARROW: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """A, M, Kd, Qd, Kr and the decay of a chunk, in the cheapest way that its gate allows."""
    if NARROW:
        offset, h = around_middle(log2, CHUNK)
        return by_middle(q, k, offset, h, CHUNK, KIND)
    elif GATE <= 2:
        return by_tree(q, k, log2, CHUNK, K, L2_NORM, KIND)
    else:
        return by_line(q, k, log2, CHUNK, K, KIND)


@triton.jit
def _fold(a, m, kr, logit, inside, CHUNK: tl.constexpr):
    """Y = M X and Z = X^T Kr, with X = (I + diag(beta) A)^-1 diag(beta).

    The wide product comes last: Triton lays out all products of a block after its last one, and
    after a [C, C] one half of the warps would repeat the others' work.
    """
    decline = tl.exp2(-logit.to(tl.float32) * 1.4426950408889634)
    strength = tl.where(inside, 1.0 / (1.0 + decline), 0.0)
    x = _inverse(a * strength[:, None], CHUNK) * strength[None, :]
    x16 = to_dtype(x, kr.dtype)
    y = dot16(to_dtype(m, kr.dtype), x16)
    return y, dot16(tl.trans(x16), kr)


@triton.jit(do_not_specialize=["n_seqs", "n_slots", "heads"])
def chunk_intra(
    q, k, g, beta, a_log, dt_bias, cu_seqlens, work, decay,
    scale, lower_bound, n_seqs, n_slots, heads,
    CHUNK: tl.constexpr, K: tl.constexpr, GATE: tl.constexpr, DELTA: tl.constexpr,
    L2_NORM: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """One chunk of one head. Inputs token-major [T, H, *]; for the workspace see `tiles`."""
    # One dimension: the others of a grid end at 65535, 2 million tokens in chunks of 32.
    head = tl.program_id(0) % heads
    slot = (tl.program_id(0) // heads).to(tl.int64)
    begin, end = locate_chunk(cu_seqlens, slot, n_seqs, CHUNK)
    if begin >= end:
        return
    tile = head * n_slots + slot
    qd, z, y, kd = tiles(work, tile, CHUNK, K, DELTA)
    decay += tile * K
    tokens = begin + tl.arange(0, CHUNK)
    inside = tokens < end
    channel = tl.arange(0, K)
    at = (tokens * heads + head)[:, None] * K + channel[None, :]
    line = tokens * heads + head
    # Every load is asked for before the first is used: a program lives for a few latencies. k and
    # q go to shared memory as they come, so what waits in registers is asked for before them.
    raw = _raw_gate(g, at, line, inside, GATE)
    logit = 0.0
    if DELTA:
        logit = tl.load(beta + line, mask=inside, other=0.0)
    rate = 0.0
    bias = 0.0
    if GATE <= 1:
        rate = tl.load(a_log + head)
    k_tile = tl.load(k + at, mask=inside[:, None], other=0.0)
    q_tile = tl.load(q + at, mask=inside[:, None], other=0.0)
    if GATE <= 1:
        bias = tl.load(dt_bias + head * K + channel)[None, :]
    log2 = log2_decay(raw.to(tl.float32), rate, bias, lower_bound, GATE)
    kind: tl.constexpr = z.dtype.element_ty
    query, key = _rows(q_tile, k_tile, scale, CHUNK, L2_NORM, NARROW)
    a, m, kd_tile, qd_tile, kr, total = _decayed(
        query, key, log2, CHUNK, K, GATE, L2_NORM, NARROW, kind
    )
    row = tl.arange(0, CHUNK)
    wide = row[:, None] * K + channel[None, :]
    tl.store(qd + wide, qd_tile)
    tl.store(decay + channel, total)
    if DELTA:
        tl.store(kd + wide, negative(kd_tile))  # K2 adds it
        m, z_tile = _fold(a, m, kr, logit, inside, CHUNK)
        tl.store(z + wide, to_dtype(z_tile, kind))
    else:
        tl.store(z + wide, kr)
    tl.store(y + row[:, None] * CHUNK + row[None, :], to_dtype(m, kind))
