"""Causal attention of packed sequences on expanded keys and values, behind cached prefixes or none.

    s = scale * (q_nope k_nope^T + q_pe k_pe^T)        o = softmax(s) v

in one pass over the keys with a running maximum and denominator (FlashAttention, arXiv
2205.14135). The width of q and k, 192, is no power of two: its two parts are multiplied one after
the other instead of padding it to 256. Queries are the last of their sequence, so row i of S sees
the first L - S + i + 1 of L keys; tiles that every row of a block sees skip the mask.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.dot import dot16, dot16_add, to_dtype


@triton.jit
def locate_block(cu_seqlens, slot, n_seqs, BLOCK_M: tl.constexpr):
    """The sequence of a slot and its block there: sequence n owns slots from cu[n] // M + n on.

    That needs no prefix sum over block counts (so no host sync and no extra kernel);
    ceil(len / M) <= cu[n+1] // M - cu[n] // M + 1 keeps the ranges apart and leaves a few idle.
    """
    low = 0
    high = n_seqs
    while high - low > 1:
        middle = (low + high) // 2
        first = (tl.load(cu_seqlens + middle) // BLOCK_M + middle).to(tl.int32)
        low = tl.where(first <= slot, middle, low)
        high = tl.where(first <= slot, high, middle)
    start = tl.load(cu_seqlens + low)
    return low, slot - (start // BLOCK_M + low).to(tl.int32)


@triton.jit
def _attend_tile(
    q_nope, q_pe, k, v, at_k, at_v, start, keys, last, scale, top, total, acc,
    NOPE: tl.constexpr, ROPE: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One tile of keys: the running maximum, denominator and numerator with it.

    `at_k` and `at_v` are pointers to the first columns of the tile's rows.
    """
    position = start + tl.arange(0, BLOCK_N)
    inside = (position < keys)[:, None]
    nope = at_k[:, None] + tl.arange(0, NOPE)[None, :]
    rope = at_k[:, None] + (NOPE + tl.arange(0, max(ROPE, 16)))[None, :]
    value = at_v[:, None] + tl.arange(0, acc.shape[1])[None, :]
    if MASKED:
        s = dot16(q_nope, tl.trans(tl.load(nope, mask=inside, other=0.0)))
        if ROPE > 0:
            s = dot16_add(q_pe, tl.trans(tl.load(rope, mask=inside, other=0.0)), s)
        s = tl.where(position[None, :] <= last[:, None], s * scale, float("-inf"))
        held = tl.load(value, mask=inside, other=0.0)
    else:
        s = dot16(q_nope, tl.trans(tl.load(nope)))
        if ROPE > 0:
            s = dot16_add(q_pe, tl.trans(tl.load(rope)), s)
        s *= scale
        held = tl.load(value)
    higher = tl.maximum(top, tl.max(s, axis=1))
    p = tl.exp2(s - higher[:, None])
    shrink = tl.exp2(top - higher)
    total = total * shrink + tl.sum(p, axis=1)
    acc = dot16_add(to_dtype(p, q_nope.dtype), held, acc * shrink[:, None])
    return higher, total, acc


# Sizes are no constants to compile for: batches change from step to step.
@triton.jit(do_not_specialize=["n_seqs", "n_slots", "heads", "heads_together"])
def attend(
    q, k, v, o, cu_queries, cu_keys, scale_log2, n_seqs, n_slots, heads, heads_together,
    NOPE: tl.constexpr, ROPE: tl.constexpr, VALUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head. q [T, H, N + R]; k [Tk, H, N + R]; v [Tk, H, V]; o [T, H, V].

    Programs run in order of their number: the last blocks of a sequence, which see the most keys,
    come first, `heads_together` heads side by side.
    """
    program = tl.program_id(0)
    lane = program % heads_together
    slot = n_slots - 1 - (program // heads_together) % n_slots
    head = (program // heads_together) // n_slots * heads_together + lane
    sequence, block = locate_block(cu_queries, slot, n_seqs, BLOCK_M)
    first_query = tl.load(cu_queries + sequence)
    queries = (tl.load(cu_queries + sequence + 1) - first_query).to(tl.int32)
    if (block * BLOCK_M >= queries) | (head >= heads):
        return
    first_key = tl.load(cu_keys + sequence)
    keys = (tl.load(cu_keys + sequence + 1) - first_key).to(tl.int32)

    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    valid = (row < queries)[:, None]
    line = (first_query + row) * heads + head
    width: tl.constexpr = NOPE + ROPE
    at = q + line[:, None] * width
    q_nope = tl.load(at + tl.arange(0, NOPE)[None, :], mask=valid, other=0.0)
    q_pe = q_nope
    if ROPE > 0:
        q_pe = tl.load(at + (NOPE + tl.arange(0, ROPE))[None, :], mask=valid, other=0.0)

    last = keys - queries + row
    seen = tl.maximum(keys - queries + block * BLOCK_M + 1, 0)  # by every row of the block
    end = tl.minimum(keys - queries + (block + 1) * BLOCK_M, keys)
    full = seen // BLOCK_N * BLOCK_N
    top = tl.full([BLOCK_M], -1e30, tl.float32)  # finite: -inf minus -inf is a NaN
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, VALUE], tl.float32)
    column = tl.arange(0, BLOCK_N)
    for start in tl.range(0, full, BLOCK_N, num_stages=STAGES):
        place = (first_key + start + column) * heads + head
        top, total, acc = _attend_tile(
            q_nope, q_pe, k, v, k + place * width, v + place * VALUE, start, keys, last,
            scale_log2, top, total, acc, NOPE, ROPE, BLOCK_N, False,
        )  # fmt: skip
    for start in tl.range(full, end, BLOCK_N, num_stages=1):
        place = (first_key + start + column) * heads + head
        top, total, acc = _attend_tile(
            q_nope, q_pe, k, v, k + place * width, v + place * VALUE, start, keys, last,
            scale_log2, top, total, acc, NOPE, ROPE, BLOCK_N, True,
        )  # fmt: skip
    out = acc / tl.maximum(total, 1e-30)[:, None]
    at = line[:, None] * VALUE + tl.arange(0, VALUE)[None, :]
    tl.store(o + at, to_dtype(out, o.dtype.element_ty), mask=valid)
