"""K2 of chunked linear attention: the state through the chunks of a sequence, and the outputs.

With the workspace of K1 (`chunk_intra`), per chunk:

    R = V - Kd S        o = Qd S + Y R        S <- diag(decay) S + Z^T R

(`kd` holds -Kd, so that R is one accumulation).

Columns of S are independent of each other, so a program holds BLOCK_V of them. It holds them as
rows of S^T and computes every product transposed: then S^T and R^T are left operands, which the
matrix unit reads from registers, and nothing on the serial chain passes through shared memory.

An fp16 workspace needs S and R in fp16 too, whose range values and states may exceed. So each
column is divided by a power of two, the unit, that follows the largest |V| and |S_0| so far: the
columns of S are linear in those of V. S grows by a factor of 2^20 over it before it overflows.

Column blocks still leave one long sequence with few heads on a handful of processors: then the
chunks are cut into segments (`segment_scan` -> `segment_prefix` -> `state_scan` from each
segment's own start). A segment maps S to P S + L; both come from the same recurrence, L with
S = 0, P with S = I and V = 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.chunk_intra import tiles
from benchx_kernels.device.dot import (
    dot16,
    dot16_add,
    dot_split,
    identity,
    split_bf16,
    to_bf16,
    to_dtype,
)

_HEADROOM = tl.constexpr(32.0)  # scaled values are below 2^-4: products of 16 bits reach 2^16
_SMALLEST = tl.constexpr(2.0**-100)
_LARGEST = tl.constexpr(2.0**120)


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
def _begin(
    states, base, K: tl.constexpr, V: tl.constexpr, first, BLOCK_V: tl.constexpr,
    V_FIRST: tl.constexpr, PRESENT: tl.constexpr,
):  # fmt: skip
    """Rows of S^T to start from, fp32 [BLOCK_V, K]; zeros without a state."""
    if PRESENT:
        window = _state_at(base, K, V, first, BLOCK_V, V_FIRST)
        return tl.load(states + window).to(tl.float32)
    else:
        return tl.zeros([BLOCK_V, K], tl.float32)


@triton.jit
def _values(v, token, end, head, heads, column, CHUNK: tl.constexpr, V: tl.constexpr):
    """V^T of one chunk, fp32 [BLOCK_V, C]; 0 beyond the end of the sequence and the last column.

    Transposed by the matrix unit, as V^T I, which is exact: an operand of a product is copied
    ahead asynchronously, while a plain load would put memory latency on every step of the chain.
    """
    row = tl.arange(0, CHUNK)[:, None]
    inside = (row < end - token) & (column < V)[None, :]
    first = v + (token * heads + head) * V
    tile = tl.load(first + row * (heads * V) + column[None, :], mask=inside, other=0.0)
    if tile.dtype == tl.float32:
        tile = to_bf16(tile)
    return dot16(tl.trans(tile), identity(CHUNK, tile.dtype))


@triton.jit
def _unit(peak):
    """The power of two that values of at most `peak` in magnitude are divided by, and its inverse.

    Made of exponent bits: exact, and no division.
    """
    kept = tl.minimum(tl.maximum(peak, _SMALLEST), _LARGEST)
    exponent = kept.to(tl.uint32, bitcast=True) & 0x7F800000
    unit = exponent.to(tl.float32, bitcast=True) * _HEADROOM
    inverse = (0x7F000000 - exponent).to(tl.float32, bitcast=True) / _HEADROOM
    return unit, inverse


@triton.jit
def _enter(state, HALF: tl.constexpr):
    """A state [BLOCK_V, K] in units of its rows, the rows' largest value and the units."""
    peak = tl.max(tl.abs(state), axis=1)
    unit, inverse = _unit(peak)
    if HALF:
        state = state * inverse[:, None]
    return state, peak, unit


@triton.jit
def _rescale(state, values, peak, unit, HALF: tl.constexpr):
    """State and values in the units that the values ask for."""
    if HALF:
        peak = tl.maximum(peak, tl.max(tl.abs(values), axis=1))
        wider, inverse = _unit(peak)
        state = state * (unit * inverse)[:, None]
        return state, values * inverse[:, None], peak, wider
    else:
        return state, values, peak, unit


@triton.jit(do_not_specialize=["n_slots", "heads", "n_segments", "segment_chunks"])
def state_scan(
    work, decay, v, cu_seqlens, initial, final, starts, o,
    n_slots, heads, n_segments, segment_chunks,
    CHUNK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BLOCK_V: tl.constexpr, DELTA: tl.constexpr, HAS_INITIAL: tl.constexpr,
    STORE_FINAL: tl.constexpr, V_FIRST: tl.constexpr, SEGMENTED: tl.constexpr,
    STAGES: tl.constexpr,
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
        state = _begin(starts, own * n_segments + segment, K, V, first, BLOCK_V, True, True)
    else:
        state = _begin(initial, own, K, V, first, BLOCK_V, V_FIRST, HAS_INITIAL)
    kind: tl.constexpr = work.dtype.element_ty
    half: tl.constexpr = kind == tl.float16
    state, peak, unit = _enter(state, half)
    row = tl.arange(0, CHUNK)
    channel = tl.arange(0, K)
    column = first + tl.arange(0, BLOCK_V)
    wide = row[:, None] * K + channel[None, :]
    square = row[:, None] * CHUNK + row[None, :]
    across = row[:, None] * (heads * V) + column[None, :]
    for chunk in tl.range(low, high, num_stages=STAGES):
        # 64 bits for where a tile begins, 32 for what is inside it.
        tile = head * n_slots + slot0 + chunk
        qd, z, y, kd = tiles(work, tile, CHUNK, K, DELTA)
        token = start + chunk * CHUNK
        rest = _values(v, token, end, head, heads, column, CHUNK, V)
        state, rest, peak, unit = _rescale(state, rest, peak, unit, half)
        s16 = to_dtype(state, kind)
        if DELTA:
            rest = dot16_add(s16, tl.trans(tl.load(kd + wide)), rest)
        rest = to_dtype(rest, kind)
        out = dot16(s16, tl.trans(tl.load(qd + wide)))
        out = dot16_add(rest, tl.trans(tl.load(y + square)), out)
        shrink = tl.load(decay + tile * K + channel)
        z_tile = tl.load(z + wide)
        state = dot16_add(rest, z_tile, state * shrink[None, :])
        if half:
            out = out * unit[:, None]
        result = to_dtype(tl.trans(out), o.dtype.element_ty)
        here = o + (token * heads + head) * V
        tl.store(here + across, result, mask=(row < end - token)[:, None])
    if half:
        state = state * unit[:, None]
    if STORE_FINAL and (high >= chunks):
        window = _state_at(own, K, V, first, BLOCK_V, V_FIRST)
        tl.store(final + window, to_dtype(state, final.dtype.element_ty))


@triton.jit
def _own_state(
    work, decay, v, tile, token, end, head, heads, column, count,
    CHUNK: tl.constexpr, K: tl.constexpr, V: tl.constexpr, DELTA: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Columns of L^T, fp32 [BLOCK_V, K], of the `count` chunks from `tile` and `token` on."""
    kind: tl.constexpr = work.dtype.element_ty
    half: tl.constexpr = kind == tl.float16
    row = tl.arange(0, CHUNK)
    channel = tl.arange(0, K)
    wide = row[:, None] * K + channel[None, :]
    state = tl.zeros([column.shape[0], K], tl.float32)
    state, peak, unit = _enter(state, half)
    for chunk in tl.range(0, count, num_stages=STAGES):
        _, z, _, kd = tiles(work, tile + chunk, CHUNK, K, DELTA)
        rest = _values(v, token + chunk * CHUNK, end, head, heads, column, CHUNK, V)
        state, rest, peak, unit = _rescale(state, rest, peak, unit, half)
        if DELTA:
            kd_tile = tl.load(kd + wide)
            rest = dot16_add(to_dtype(state, kind), tl.trans(kd_tile), rest)
        shrink = tl.load(decay + (tile + chunk) * K + channel)
        z_tile = tl.load(z + wide)
        state = dot16_add(to_dtype(rest, kind), z_tile, state * shrink[None, :])
    if half:
        state = state * unit[:, None]
    return state


@triton.jit
def _transition(
    work, decay, tile, column, count,
    CHUNK: tl.constexpr, K: tl.constexpr, DELTA: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Columns of P^T, fp32 [BLOCK_V, K], of the `count` chunks from `tile` on.

    A walk without values is two thirds as long; and P, which contracts, stays in fp16's range
    without units.
    """
    kind: tl.constexpr = work.dtype.element_ty
    row = tl.arange(0, CHUNK)
    channel = tl.arange(0, K)
    wide = row[:, None] * K + channel[None, :]
    state = tl.where(column[:, None] == channel[None, :], 1.0, 0.0)
    for chunk in tl.range(0, count, num_stages=STAGES):
        _, z, _, kd = tiles(work, tile + chunk, CHUNK, K, DELTA)
        shrink = tl.load(decay + (tile + chunk) * K + channel)
        if DELTA:
            rest = dot16(to_dtype(state, kind), tl.trans(tl.load(kd + wide)))
            z_tile = tl.load(z + wide)
            state = dot16_add(to_dtype(rest, kind), z_tile, state * shrink[None, :])
        else:
            state = state * shrink[None, :]
    return state


@triton.jit(do_not_specialize=["n_slots", "heads", "n_segments", "segment_chunks"])
def segment_scan(
    work, decay, v, cu_seqlens, own, transition,
    n_slots, heads, n_segments, segment_chunks,
    CHUNK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BLOCK_V: tl.constexpr, DELTA: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """L^T and P^T of one segment: `own` [N*H*segments, V, K] fp32, `transition` two bf16 [K, K].

    The last segment's are not needed: the grid leaves it out. P as a sum of two is what
    `segment_prefix` multiplies: there, every program would convert all of it at every step.
    """
    # A processor's programs are as far apart as there are processors. L and P change places in
    # every other head and segment, or all of them could be L's, which take longer.
    BLOCKS: tl.constexpr = (V + K) // BLOCK_V
    turn = ((tl.program_id(1) + tl.program_id(2) * heads) & 1) * (BLOCKS // 2)
    first = (tl.program_id(0) + turn) % BLOCKS * BLOCK_V
    head = tl.program_id(1).to(tl.int64)
    seq = tl.program_id(2) // (n_segments - 1)
    segment = tl.program_id(2) % (n_segments - 1)
    start, end, slot0, chunks = _sequence(cu_seqlens, seq, CHUNK)
    low = segment * segment_chunks
    if low + segment_chunks >= chunks:  # a shorter sequence's last segment, or none
        return
    tile = head * n_slots + slot0 + low
    index = ((seq * heads + head) * n_segments + segment).to(tl.int64)
    channel = tl.arange(0, K)
    if first < V:
        column = first + tl.arange(0, BLOCK_V)
        state = _own_state(
            work, decay, v, tile, start + low * CHUNK, end, head, heads, column,
            segment_chunks, CHUNK, K, V, DELTA, STAGES,
        )  # fmt: skip
        tl.store(own + index * V * K + column[:, None] * K + channel[None, :], state)
    else:
        column = first - V + tl.arange(0, BLOCK_V)
        state = _transition(work, decay, tile, column, segment_chunks, CHUNK, K, DELTA, STAGES)
        major, minor = split_bf16(state)
        target = transition + index * 2 * K * K + column[:, None] * K + channel[None, :]
        tl.store(target, major)
        tl.store(target + K * K, minor)


@triton.jit(do_not_specialize=["heads", "n_segments", "segment_chunks"])
def segment_prefix(
    own, transition, initial, starts, cu_seqlens,
    heads, n_segments, segment_chunks,
    CHUNK: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_V: tl.constexpr,
    HAS_INITIAL: tl.constexpr, V_FIRST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The state before each segment, `starts` [N*H*segments, V, K] fp32: S <- P S + L."""
    first = tl.program_id(0) * BLOCK_V
    head = tl.program_id(1).to(tl.int64)
    seq = tl.program_id(2)
    _, _, _, chunks = _sequence(cu_seqlens, seq, CHUNK)
    index = (seq * heads + head).to(tl.int64)
    state = _begin(initial, index, K, V, first, BLOCK_V, V_FIRST, HAS_INITIAL)
    row = tl.arange(0, K)
    square = row[:, None] * K + row[None, :]
    window = _state_at(index * n_segments, K, V, first, BLOCK_V, True)
    own += window
    starts += window
    transition += index * n_segments * 2 * K * K
    last = tl.maximum((chunks + segment_chunks - 1) // segment_chunks, 1) - 1
    for segment in tl.range(0, last, num_stages=STAGES):
        high = tl.load(transition + segment * 2 * K * K + square)
        low = tl.load(transition + segment * 2 * K * K + K * K + square)
        start = tl.load(own + segment * V * K)
        tl.store(starts + segment * V * K, state)
        state = dot_split(state, high, low, start)
    tl.store(starts + last * V * K, state)
