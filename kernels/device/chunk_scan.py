"""K2 of chunked linear attention: the state through the chunks of a sequence, and the outputs.

With the workspace of K1 (`chunk_intra`), per chunk:

    R = V - Kd S        o = Qd S + Y R        S <- diag(decay) S + Z^T R

(`kd` holds -Kd, so that R is one accumulation).

Columns of S are independent of each other, so a program holds BLOCK_V of them. It holds them as
rows of S^T and computes every product transposed: then S^T and R^T are left operands, which the
matrix unit reads from registers, and nothing on the serial chain passes through shared memory.

Column blocks still leave one long sequence with few heads on a handful of processors: then the
chunks are cut into segments (`segment_scan` -> `segment_prefix` -> `state_scan` from each
segment's own start). A segment maps S to P S + L; both come from the same recurrence, L with
S = 0, P with S = I and V = 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.dot import dot16, dot16_add, dot_split, to_bf16, to_dtype


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
    """Offsets of rows `first` on of S^T, [BLOCK_V, K], in a state stored [V, K] or [K, V]."""
    row = first + tl.arange(0, BLOCK_V)[:, None]
    channel = tl.arange(0, K)[None, :]
    if V_FIRST:
        return base * K * V + row * K + channel
    else:
        return base * K * V + channel * V + row


@triton.jit
def _values(v, token, end, head, heads, column, CHUNK: tl.constexpr, V: tl.constexpr):
    """V^T of one chunk, fp32 [BLOCK_V, C]; 0 beyond the end of the sequence and the last column.

    Transposed by the matrix unit, as V^T I, which is exact: an operand of a product is copied
    ahead asynchronously, while a plain load would put memory latency on every step of the chain.
    """
    at = (token * heads + head)[:, None] * V + column[None, :]
    inside = (token < end)[:, None] & (column < V)[None, :]
    identity = tl.arange(0, CHUNK)[:, None] == tl.arange(0, CHUNK)[None, :]
    tile = to_bf16(tl.load(v + at, mask=inside, other=0.0))
    return dot16(tl.trans(tile), tl.where(identity, 1.0, 0.0).to(tl.bfloat16))


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
        window = _state_at(own * n_segments + segment, K, V, first, BLOCK_V, True)
        state = tl.load(starts + window)
    elif HAS_INITIAL:
        window = _state_at(own, K, V, first, BLOCK_V, V_FIRST)
        state = tl.load(initial + window).to(tl.float32)
    else:
        state = tl.zeros([BLOCK_V, K], tl.float32)

    row = tl.arange(0, CHUNK)
    channel = tl.arange(0, K)
    column = first + tl.arange(0, BLOCK_V)
    for chunk in tl.range(low, high, num_stages=STAGES):
        tile = head * n_slots + slot0 + chunk
        rows = tile * CHUNK + row
        wide = rows[:, None] * K + channel[None, :]
        token = start + chunk * CHUNK + row
        rest = _values(v, token, end, head, heads, column, CHUNK, V)
        s16 = to_bf16(state)
        if DELTA:
            rest = dot16_add(s16, tl.trans(tl.load(kd + wide)), rest)
        rest = to_bf16(rest)
        out = dot16(s16, tl.trans(tl.load(qd + wide)))
        square = rows[:, None] * CHUNK + row[None, :]
        out = dot16_add(rest, tl.trans(tl.load(y + square)), out)
        shrink = tl.load(decay + tile * K + channel)
        state = dot16_add(rest, tl.load(z + wide), state * shrink[None, :])
        at = (token * heads + head)[:, None] * V + column[None, :]
        result = to_dtype(tl.trans(out), o.dtype.element_ty)
        tl.store(o + at, result, mask=(token < end)[:, None])
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
    """L and P of one segment: `local` [N*H*segments, V + K, K] fp32: L^T, then P^T."""
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
    state = tl.where((column - V)[:, None] == channel[None, :], 1.0, 0.0)
    for chunk in tl.range(low, high, num_stages=STAGES):
        tile = head * n_slots + slot0 + chunk
        wide = (tile * CHUNK + row)[:, None] * K + channel[None, :]
        rest = _values(v, start + chunk * CHUNK + row, end, head, heads, column, CHUNK, V)
        if DELTA:
            rest = dot16_add(to_bf16(state), tl.trans(tl.load(kd + wide)), rest)
        shrink = tl.load(decay + tile * K + channel)
        state = dot16_add(to_bf16(rest), tl.load(z + wide), state * shrink[None, :])
    own = ((seq * heads + head) * n_segments + segment).to(tl.int64)
    target = local + own * (V + K) * K + column[:, None] * K + channel[None, :]
    tl.store(target, state)


@triton.jit(do_not_specialize=["heads", "n_segments", "segment_chunks"])
def segment_prefix(
    local, initial, starts, cu_seqlens,
    heads, n_segments, segment_chunks,
    CHUNK: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_V: tl.constexpr,
    HAS_INITIAL: tl.constexpr, V_FIRST: tl.constexpr,
):  # fmt: skip
    """The state before each segment, `starts` [N*H*segments, V, K] fp32: S <- P S + L."""
    first = tl.program_id(0) * BLOCK_V
    head = tl.program_id(1).to(tl.int64)
    seq = tl.program_id(2)
    _, _, _, chunks = _sequence(cu_seqlens, seq, CHUNK)
    own = (seq * heads + head).to(tl.int64)
    if HAS_INITIAL:
        state = tl.load(initial + _state_at(own, K, V, first, BLOCK_V, V_FIRST)).to(tl.float32)
    else:
        state = tl.zeros([BLOCK_V, K], tl.float32)
    channel = tl.arange(0, K)
    column = first + tl.arange(0, BLOCK_V)
    used = tl.maximum((chunks + segment_chunks - 1) // segment_chunks, 1)
    for segment in range(0, used):
        tl.store(starts + _state_at(own * n_segments + segment, K, V, first, BLOCK_V, True), state)
        if segment + 1 < used:
            base = local + (own * n_segments + segment) * (V + K) * K
            step = tl.load(base + (V + channel)[:, None] * K + channel[None, :])
            start_at = tl.load(base + column[:, None] * K + channel[None, :])
            state = start_at + dot_split(state, step)
