"""K2 of chunked linear attention: the state through the chunks of a sequence, and the outputs.

With the workspace of K1 (`chunk_intra`), per chunk:

    R = V - Kd S        o = Qd S + Y R        S <- diag(decay) S + Z^T R

Columns of S are independent of each other, so a program holds BLOCK_V of them. That still leaves
one long sequence with few heads on a handful of processors: then the chunks are cut into segments
(`segment_scan` -> `segment_prefix` -> `state_scan` from each segment's own start). A segment maps
S to P S + L; both come from the same recurrence, L with S = 0, P with S = I and V = 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.dot import dot16, dot16_add, to_bf16, to_dtype


@triton.jit
def _sequence(cu_seqlens, seq, CHUNK: tl.constexpr):
    """First token, end, first slot and number of chunks of a sequence."""
    start = tl.load(cu_seqlens + seq).to(tl.int64)
    end = tl.load(cu_seqlens + seq + 1).to(tl.int64)
    return start, end, start // CHUNK + seq, (end - start + CHUNK - 1) // CHUNK


@triton.jit
def _state_at(
    base, K: tl.constexpr, V: tl.constexpr, first, BLOCK_V: tl.constexpr, V_FIRST: tl.constexpr
):
    """Offsets of a [K, BLOCK_V] window in a state stored [V, K] (V_FIRST) or [K, V]."""
    rows = tl.arange(0, K)[:, None]
    cols = first + tl.arange(0, BLOCK_V)[None, :]
    if V_FIRST:
        return base * K * V + cols * K + rows
    return base * K * V + rows * V + cols


@triton.jit(do_not_specialize=["n_slots", "heads", "n_segments", "segment_chunks"])
def state_scan(
    kd, qd, z, y, decay, v, cu_seqlens, initial, final, starts, o,
    n_slots, heads, n_segments, segment_chunks,
    CHUNK: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_V: tl.constexpr,
    DELTA: tl.constexpr, HAS_INITIAL: tl.constexpr, STORE_FINAL: tl.constexpr,
    V_FIRST: tl.constexpr, SEGMENTED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Outputs and final state of one (column block, head, sequence and segment)."""
    first = tl.program_id(0) * BLOCK_V
    head = tl.program_id(1).to(tl.int64)
    seq = tl.program_id(2) // n_segments
    segment = tl.program_id(2) % n_segments
    start, end, slot0, chunks = _sequence(cu_seqlens, seq, CHUNK)
    low = segment * segment_chunks
    high = tl.minimum(low + segment_chunks, chunks)
    if (low >= chunks) & (segment > 0):
        return
    own = (seq * heads + head).to(tl.int64)
    if SEGMENTED:
        window = _state_at(own * n_segments + segment, K, V, first, BLOCK_V, False)
        state = tl.load(starts + window)
    elif HAS_INITIAL:
        window = _state_at(own, K, V, first, BLOCK_V, V_FIRST)
        state = tl.load(initial + window).to(tl.float32)
    else:
        state = tl.zeros([K, BLOCK_V], tl.float32)

    row = tl.arange(0, CHUNK)
    channel = tl.arange(0, K)
    column = first + tl.arange(0, BLOCK_V)
    for chunk in tl.range(low, high, num_stages=STAGES):
        tile = head * n_slots + slot0 + chunk
        rows = tile * CHUNK + row
        wide = rows[:, None] * K + channel[None, :]
        token = start + chunk * CHUNK + row
        inside = (token < end)[:, None]
        at = (token * heads + head)[:, None] * V + column[None, :]
        rest = tl.load(v + at, mask=inside, other=0.0)
        s16 = to_bf16(state)
        if DELTA:
            rest = rest.to(tl.float32) - dot16(tl.load(kd + wide), s16)
        rest = to_bf16(rest)
        out = dot16(tl.load(qd + wide), s16)
        out = dot16_add(tl.load(y + rows[:, None] * CHUNK + row[None, :]), rest, out)
        shrink = tl.load(decay + tile * K + channel)
        state = dot16_add(tl.trans(tl.load(z + wide)), rest, state * shrink[:, None])
        tl.store(o + at, to_dtype(out, o.dtype.element_ty), mask=inside)
    if STORE_FINAL and (high >= chunks):
        window = _state_at(own, K, V, first, BLOCK_V, V_FIRST)
        tl.store(final + window, to_dtype(state, final.dtype.element_ty))


@triton.jit(do_not_specialize=["n_slots", "heads", "n_segments", "segment_chunks"])
def segment_scan(
    kd, z, decay, v, cu_seqlens, local,
    n_slots, heads, n_segments, segment_chunks,
    CHUNK: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_V: tl.constexpr,
    DELTA: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """L and P of one segment: `local` [N*H*segments, K, V + K] fp32, L in the first V columns."""
    first = tl.program_id(0) * BLOCK_V
    head = tl.program_id(1).to(tl.int64)
    seq = tl.program_id(2) // n_segments
    segment = tl.program_id(2) % n_segments
    start, end, slot0, chunks = _sequence(cu_seqlens, seq, CHUNK)
    low = segment * segment_chunks
    high = tl.minimum(low + segment_chunks, chunks)
    if high <= low:
        return
    row = tl.arange(0, CHUNK)
    channel = tl.arange(0, K)
    column = first + tl.arange(0, BLOCK_V)
    identity = channel[:, None] == (column - V)[None, :]
    state = tl.where(identity, 1.0, 0.0)
    for chunk in tl.range(low, high, num_stages=STAGES):
        tile = head * n_slots + slot0 + chunk
        wide = (tile * CHUNK + row)[:, None] * K + channel[None, :]
        token = start + chunk * CHUNK + row
        at = (token * heads + head)[:, None] * V + column[None, :]
        rest = tl.load(v + at, mask=(token < end)[:, None] & (column < V)[None, :], other=0.0)
        if DELTA:
            rest = rest.to(tl.float32) - dot16(tl.load(kd + wide), to_bf16(state))
        shrink = tl.load(decay + tile * K + channel)
        state = dot16_add(tl.trans(tl.load(z + wide)), to_bf16(rest), state * shrink[:, None])
    own = ((seq * heads + head) * n_segments + segment).to(tl.int64)
    target = local + own * K * (V + K) + channel[:, None] * (V + K) + column[None, :]
    tl.store(target, state)


@triton.jit(do_not_specialize=["heads", "n_segments", "segment_chunks"])
def segment_prefix(
    local, initial, starts, cu_seqlens,
    heads, n_segments, segment_chunks,
    CHUNK: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_V: tl.constexpr,
    HAS_INITIAL: tl.constexpr, V_FIRST: tl.constexpr,
):  # fmt: skip
    """The state before each segment, `starts` [N*H*segments, K, V] fp32: S <- P S + L."""
    first = tl.program_id(0) * BLOCK_V
    head = tl.program_id(1).to(tl.int64)
    seq = tl.program_id(2)
    _, _, _, chunks = _sequence(cu_seqlens, seq, CHUNK)
    own = (seq * heads + head).to(tl.int64)
    if HAS_INITIAL:
        state = tl.load(initial + _state_at(own, K, V, first, BLOCK_V, V_FIRST)).to(tl.float32)
    else:
        state = tl.zeros([K, BLOCK_V], tl.float32)
    channel = tl.arange(0, K)
    column = first + tl.arange(0, BLOCK_V)
    used = tl.maximum((chunks + segment_chunks - 1) // segment_chunks, 1)
    for segment in range(0, used):
        at = _state_at(own * n_segments + segment, K, V, first, BLOCK_V, False)
        tl.store(starts + at, state)
        if segment + 1 < used:
            base = local + (own * n_segments + segment) * K * (V + K) + channel[:, None] * (V + K)
            step = tl.load(base + V + channel[None, :])
            state = tl.load(base + column[None, :]) + tl.dot(step, state, input_precision="tf32x3")
