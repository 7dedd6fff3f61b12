"""MLA decode for Hopper: two warpgroups share the work on every pair of tiles, a third warp loads.

The same computation as `mla_decode.attend` (read that first), in Gluon, because a register file
holds 64 rows x 512 value columns only when two warpgroups split them, and plain Triton then makes
both compute every score. Here warpgroup w computes the scores of the tiles of parity w, all
columns of q and row, and accumulates half w of the value columns of every tile:

    group 0   P0 | acc_l += P0 V0_l . . . . | acc_l += P1 V1_l | S2 = Q K2^T   P2 | ..
    group 1      | acc_r += P0 V0_r    P1 | acc_r += P1 V1_r | S3 = Q K3^T . . .  | ..

so one group's softmax runs beside the other's products.

What they hand each other is a tile's weights (in the place of its rope columns, which only its
scores need) and the running maximum up to it. Two tiles fit the chip (216 KiB of 227 with the
queries), so what decides is how soon a half is loaded again: its only reader says so at once,
before it starts anything else, and scores begin with the half that comes first. Only the last
pair of tiles is looked through for positions that hold no token.

The matrix unit finds its operands in shared memory by descriptors, one for each 16 columns. Where
an operand stands still, the compiler computes all of them before the loop, runs out of registers
and reads them back from memory before every product: a quarter of a warpgroup's time. So places
are named with `zero`, a number that is 0 but changes for all the compiler knows, and descriptors
are computed where they are used.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from benchx_kernels.device.hopper_softmax import clear_tail, scaled, tile_weights
from benchx_kernels.device.mla_decode_hopper_parts import (
    empty_state,
    load_queries,
    make_barriers,
    make_buffers,
    publish,
    row_bounds,
    shared_sum,
    store_half,
)

# Triton 3.9 calls it `async_load`; 3.6 knows only the longer name, which 3.9 refuses.
_copy_in = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@gluon.jit
def _load_tile(
    maps, table, tiles, barriers, tile, phase, SLOT: gl.constexpr, LATENT: gl.constexpr,
    ROPE: gl.constexpr, PAGE: gl.constexpr,
):  # fmt: skip
    """Copy one tile into its slot: first the half that the group which scores it multiplies.

    The order matters: that half is free first, and the rope columns give their place to the
    tile's weights, which the other group reads last.
    """
    full, empty, _ = barriers
    half: gl.constexpr = LATENT // 2
    near: gl.constexpr = SLOT
    far: gl.constexpr = 1 - SLOT
    row = gl.load(table + tile * 64 // PAGE) * PAGE + tile * 64 % PAGE
    arrived = full.index(2 * SLOT + near)
    mbarrier.wait(empty.index(2 * SLOT + near), phase)
    mbarrier.expect(arrived, 64 * half * 2)
    _copy_in(maps[0], [row, near * half], arrived, tiles[near].index(SLOT))
    arrived = full.index(2 * SLOT + far)
    mbarrier.wait(empty.index(2 * SLOT + far), phase)
    mbarrier.expect(arrived, 64 * (half + ROPE) * 2)
    _copy_in(maps[0], [row, far * half], arrived, tiles[far].index(SLOT))
    if ROPE > 0:
        _copy_in(maps[1], [row, LATENT], arrived, tiles[2].index(SLOT))


@gluon.jit
def _load_tiles(
    maps, table, tiles, barriers, span, LATENT: gl.constexpr, ROPE: gl.constexpr,
    PAGE: gl.constexpr,
):  # fmt: skip
    """The loading warp."""
    low, high, pairs, _ = span
    for pair in range(pairs):
        phase = (pair & 1) ^ 1
        even = low + 2 * pair
        odd = gl.minimum(even + 1, high - 1)  # a pair's second tile may not exist
        _load_tile(maps, table, tiles, barriers, even, phase, 0, LATENT, ROPE, PAGE)
        _load_tile(maps, table, tiles, barriers, odd, phase, 1, LATENT, ROPE, PAGE)


@gluon.jit
def _start_scores(
    s, queries, tiles, full, phase, zero, SLOT: gl.constexpr, PART: gl.constexpr, ROPE: gl.constexpr
):
    """Start one part of Q K^T when its half has arrived: first (0) the half that comes first."""
    side: gl.constexpr = (SLOT + PART) % 2
    mbarrier.wait(full.index(2 * SLOT + side), phase)
    keys = tiles[side].index(zero + SLOT).permute((1, 0))
    s = warpgroup_mma(queries[side].index(zero), keys, s, use_acc=PART == 1, is_async=True)
    if PART == 1 and ROPE > 0:
        keys = tiles[2].index(zero + SLOT).permute((1, 0))
        s = warpgroup_mma(queries[2].index(zero), keys, s, is_async=True)
    return s


@gluon.jit
def _nothing_yet():
    """A place for scores."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    return gl.zeros([64, 64], gl.float32, layout=layout)


@gluon.jit
def _left_pair(
    s, state, left, weights, top, barriers, bounds, start, phase, zero, scale,
    LAST: gl.constexpr, dtype: gl.constexpr,
):  # fmt: skip
    """Warpgroup 0 on a pair of tiles from position `start`; its second product still runs.

    `s` are the even tile's scores, running. `state` and what is returned: numerator, running
    maximum, denominator of the even tiles.
    """
    acc, peak, total = state
    full, empty, ready = barriers
    stop, seen, last = bounds
    a_layout: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, k_width=2)
    p, higher = tile_weights(warpgroup_mma_wait(0, deps=[s]), peak, start, last, seen, scale)
    p16 = p.to(dtype)
    publish(weights, top, ready, p16, higher, 0)
    if LAST:
        clear_tail(left.index(0), start, stop)
    shrink = gl.exp2(peak - higher)
    total = total * shrink + gl.sum(p, axis=1)
    acc = scaled(acc, shrink)
    a = gl.convert_layout(p16, a_layout)
    acc = warpgroup_mma(a, left.index(zero), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(empty.index(0))
    mbarrier.wait(full.index(2), phase)
    mbarrier.wait(ready.index(1), phase)
    peak = top.index(1).load(peak.type.layout)
    shrink = gl.exp2(higher - peak)
    if LAST:
        clear_tail(left.index(1), start + 64, stop)
    acc = scaled(acc, shrink)
    acc = warpgroup_mma(weights.index(zero + 1), left.index(zero + 1), acc, is_async=True)
    return acc, peak, total * shrink


@gluon.jit
def _right_pair(
    s, state, right, weights, top, barriers, bounds, start, phase, zero, scale,
    LAST: gl.constexpr, dtype: gl.constexpr,
):  # fmt: skip
    """Warpgroup 1 on a pair of tiles, the odd one's scores running; else as `_left_pair`."""
    acc, peak, total = state
    full, empty, ready = barriers
    stop, seen, last = bounds
    a_layout: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, k_width=2)
    mbarrier.wait(full.index(1), phase)
    mbarrier.wait(ready.index(0), phase)
    higher = top.index(0).load(peak.type.layout)
    shrink = gl.exp2(peak - higher)
    total *= shrink
    if LAST:
        clear_tail(right.index(0), start, stop)
    acc = scaled(acc, shrink)
    acc = warpgroup_mma(weights.index(zero), right.index(zero), acc, is_async=True)
    s = warpgroup_mma_wait(1, deps=[s])
    p, peak = tile_weights(s, higher, start + 64, last, seen, scale)
    p16 = p.to(dtype)
    publish(weights, top, ready, p16, peak, 1)
    shrink = gl.exp2(higher - peak)
    total = total * shrink + gl.sum(p, axis=1)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(empty.index(1))
    if LAST:
        clear_tail(right.index(1), start + 64, stop)
    acc = scaled(acc, shrink)
    a = gl.convert_layout(p16, a_layout)
    acc = warpgroup_mma(a, right.index(zero + 1), acc, is_async=True)
    return acc, peak, total


@gluon.jit
def _pair(
    s, state, values, weights, top, barriers, bounds, start, phase, zero, scale,
    SIDE: gl.constexpr, LAST: gl.constexpr, dtype: gl.constexpr,
):  # fmt: skip
    """A warpgroup's part of a pair of tiles, by its side."""
    if SIDE == 0:
        return _left_pair(
            s, state, values, weights, top, barriers, bounds, start, phase, zero, scale, LAST, dtype
        )
    else:
        return _right_pair(
            s, state, values, weights, top, barriers, bounds, start, phase, zero, scale, LAST, dtype
        )


@gluon.jit
def _walk(
    buffers, barriers, scale, span, bounds, dtype: gl.constexpr, SIDE: gl.constexpr,
    LATENT: gl.constexpr, ROPE: gl.constexpr,
):  # fmt: skip
    """One warpgroup through its tiles: numerator, running maximum, denominator of its own tiles."""
    queries, tiles, weights, top, _ = buffers
    full, empty, _ = barriers
    acc, peak, total = empty_state(LATENT)
    start = span[0] * 64
    if span[2] > 0:
        s = _start_scores(_nothing_yet(), queries, tiles, full, 0, 0, SIDE, 0, ROPE)
        s = _start_scores(s, queries, tiles, full, 0, 0, SIDE, 1, ROPE)
        for pair in range(span[2] - 1):
            zero = pair >> 30
            acc, peak, total = _pair(
                s, (acc, peak, total), tiles[SIDE], weights, top, barriers, bounds,
                start, pair & 1, zero, scale, SIDE, False, dtype,
            )  # fmt: skip
            following = (pair + 1) & 1
            acc = warpgroup_mma_wait(0, deps=[acc])
            mbarrier.arrive(empty.index(2 + SIDE))
            s = _start_scores(_nothing_yet(), queries, tiles, full, following, zero, SIDE, 0, ROPE)
            s = _start_scores(s, queries, tiles, full, following, zero, SIDE, 1, ROPE)
            start += 128
        acc, peak, total = _pair(
            s, (acc, peak, total), tiles[SIDE], weights, top, barriers, bounds,
            start, (span[2] - 1) & 1, 0, scale, SIDE, True, dtype,
        )  # fmt: skip
        acc = warpgroup_mma_wait(0, deps=[acc])
    return acc, peak, total


@gluon.jit
def _left_group(
    q, o, lse, buffers, barriers, scale, span, place, line, out_line, out_stride,
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """Warpgroup 0: even tiles' scores, the left half of the output."""
    ready = barriers[2]
    load_queries(buffers[0], q, line, place, LATENT, ROPE)
    mbarrier.arrive(ready.index(4))
    row, stop, seen, last = row_bounds(span, place, TOKENS)
    acc, peak, total = _walk(
        buffers, barriers, scale, span, (stop, seen, last), q.dtype.element_ty, 0, LATENT, ROPE
    )
    total = shared_sum(buffers[4], ready, total, 0)
    if SPLIT:
        log2 = gl.where(total > 0, peak + gl.log2(total), float("-inf"))
        gl.store(lse + out_line + row * out_stride, log2, mask=row < place[1])
    store_half(o, acc, total, place, out_line, out_stride, 0, LATENT)


@gluon.jit
def _right_group(
    q, o, buffers, barriers, scale, span, place, out_line, out_stride,
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr,
):  # fmt: skip
    """Warpgroup 1: odd tiles' scores, the right half of the output."""
    ready = barriers[2]
    _, stop, seen, last = row_bounds(span, place, TOKENS)
    mbarrier.wait(ready.index(4), 0)
    acc, _, total = _walk(
        buffers, barriers, scale, span, (stop, seen, last), q.dtype.element_ty, 1, LATENT, ROPE
    )
    total = shared_sum(buffers[4], ready, total, 1)
    store_half(o, acc, total, place, out_line, out_stride, LATENT // 2, LATENT)


# Sizes are no constants to compile for: batches change from step to step.
@gluon.jit(do_not_specialize=["rows", "heads", "table_width", "n_splits"])
def attend(
    q, half_map, rope_map, table, seqlens, o, lse,
    scale_log2, rows, heads, table_width, n_splits,
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr, PAGE: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """64 rows of one sequence against one split of its keys; arguments as in `mla_decode.attend`.

    `half_map` and `rope_map` describe the cache as [slots, LATENT + ROPE] in blocks of
    [64, LATENT / 2] and [64, ROPE].
    """
    gl.static_assert(PAGE % 64 == 0)
    split = gl.program_id(1)
    sequence = gl.program_id(2).to(gl.int64)
    length = gl.minimum(gl.load(seqlens + sequence), table_width * PAGE)
    count = (length + 63) // 64
    each = (count + 2 * n_splits - 1) // (2 * n_splits) * 2  # pairs of tiles
    low = gl.minimum(split * each, count)
    high = gl.minimum(low + each, count)
    span = (low, high, (high - low + 1) // 2, length)
    place = (gl.program_id(0) * 64, rows, heads)
    line = sequence * rows
    out_line = line
    out_stride = 1
    if SPLIT:
        out_line = line * n_splits + split
        out_stride = n_splits

    buffers = make_buffers(q.dtype.element_ty, half_map, rope_map, LATENT, ROPE)
    # Full and empty: the left and right half of tile 0, then of tile 1. Then weights of tiles 0
    # and 1, both sums, queries.
    barriers = (make_barriers(4), make_barriers(4), make_barriers(5))
    maps, table = (half_map, rope_map), table + sequence * table_width
    gl.warp_specialize(
        [
            (
                _left_group,
                (
                    q, o, lse, buffers, barriers, scale_log2, span, place, line,
                    out_line, out_stride, TOKENS, LATENT, ROPE, SPLIT,
                ),
            ),
            (
                _right_group,
                (
                    q, o, buffers, barriers, scale_log2, span, place,
                    out_line, out_stride, TOKENS, LATENT, ROPE,
                ),
            ),
            (_load_tiles, (maps, table, buffers[1], barriers, span, LATENT, ROPE, PAGE)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
