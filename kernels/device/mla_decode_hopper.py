"""MLA decode for Hopper: two warpgroups share the work on every pair of tiles, a third warp loads.

The same computation as `mla_decode.attend` (read that first), in Gluon, because a register file
holds 64 rows x 512 value columns only when two warpgroups split them, and plain Triton then makes
both compute every score. Here warpgroup w computes the scores of the tiles of parity w, all
columns of q and row, and accumulates half w of the value columns of every tile. It starts the
scores of its next tile right behind its last product of a pair, and waits for that product while
they run, so the matrix unit has work during waits and rescaling:

    group 0   P0 | acc_l += P0 V0_l | acc_l += P1 V1_l, S2 = Q K2^T   P2 | acc_l += P2 V2_l ..
    group 1      | acc_r += P0 V0_r  P1 | acc_r += P1 V1_r, S3 = Q K3^T  | acc_r += P2 V2_r ..

What they hand each other is a tile's weights (in the place of its rope columns, which only its
scores need) and the running maximum up to it. A tile's halves are loaded again as soon as their
only reader is done with them. Only the last pair of tiles is looked through for positions that
hold no token.

Sizes that fit the chip: 64 rows, tiles of 64 keys, two tiles in flight, 216 KiB of 227.

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
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from benchx_kernels.device.hopper_softmax import scaled, tile_weights

# Triton 3.9 calls it `async_load`; 3.6 knows only the longer name, which 3.9 refuses.
_copy_in = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@gluon.jit
def _load_tiles(
    maps, table, tiles, barriers, span, LATENT: gl.constexpr, ROPE: gl.constexpr,
    PAGE: gl.constexpr,
):  # fmt: skip
    """The loading warp: each tile's left half, then its right half and rope columns.

    The order matters: a tile's rope columns give their place to its weights, which the left group
    reads last, so its left half is free before they are loaded again.
    """
    left, right, rope = tiles
    full, empty, _ = barriers
    low, high, pairs, _ = span
    half: gl.constexpr = LATENT // 2
    for step in range(2 * pairs):
        slot = step % 2
        phase = (step // 2) & 1
        start = gl.minimum(low + step, high - 1) * 64  # a pair's second tile may not exist
        row = gl.load(table + start // PAGE) * PAGE + start % PAGE
        mbarrier.wait(empty.index(2 * slot), phase ^ 1)
        mbarrier.expect(full.index(2 * slot), 64 * half * 2)
        _copy_in(maps[0], [row, 0], full.index(2 * slot), left.index(slot))
        mbarrier.wait(empty.index(2 * slot + 1), phase ^ 1)
        mbarrier.expect(full.index(2 * slot + 1), 64 * (half + ROPE) * 2)
        _copy_in(maps[0], [row, half], full.index(2 * slot + 1), right.index(slot))
        if ROPE > 0:
            _copy_in(maps[1], [row, LATENT], full.index(2 * slot + 1), rope.index(slot))


@gluon.jit
def _load_queries(queries, q, line, place, LATENT: gl.constexpr, ROPE: gl.constexpr):
    """Copy 64 rows of q into shared memory; rows that don't exist become 0."""
    half: gl.constexpr = LATENT // 2
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    row = place[0] + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    valid = (row < place[1])[:, None]
    at = q + (line + row)[:, None] * (LATENT + ROPE)
    column = gl.arange(0, half, layout=gl.SliceLayout(0, layout))[None, :]
    queries[0].index(0).store(gl.load(at + column, mask=valid, other=0.0))
    queries[1].index(0).store(gl.load(at + half + column, mask=valid, other=0.0))
    if ROPE > 0:
        column = gl.arange(0, ROPE, layout=gl.SliceLayout(0, layout))[None, :]
        queries[2].index(0).store(gl.load(at + LATENT + column, mask=valid, other=0.0))
    fence_async_shared()


@gluon.jit
def _start_scores(
    s, queries, tiles, full, phase, zero, SLOT: gl.constexpr, SIDE: gl.constexpr, ROPE: gl.constexpr
):
    """Start one side's part of Q K^T, the left side (0) first, when its half has arrived."""
    mbarrier.wait(full.index(2 * SLOT + SIDE), phase)
    keys = tiles[SIDE].index(zero + SLOT).permute((1, 0))
    s = warpgroup_mma(queries[SIDE].index(zero), keys, s, use_acc=SIDE == 1, is_async=True)
    if SIDE == 1 and ROPE > 0:
        keys = tiles[2].index(zero + SLOT).permute((1, 0))
        s = warpgroup_mma(queries[2].index(zero), keys, s, is_async=True)
    return s


@gluon.jit
def _nothing_yet():
    """A place for scores."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    return gl.zeros([64, 64], gl.float32, layout=layout)


@gluon.jit
def _publish(weights, top, ready, p, higher, slot):
    """Hand a tile's weights and running maximum to the other warpgroup."""
    weights.index(slot).store(p)
    top.index(slot).store(higher)
    fence_async_shared()
    mbarrier.arrive(ready.index(slot))


@gluon.jit
def _clear_tail(values, start, stop):
    """Zero the rows of positions from `stop` on: a weight of 0 times a NaN there is a NaN."""
    if start + 64 > stop:
        layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
        position = start + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
        held = values.load(layout)
        held = gl.where((position < stop)[:, None], held, gl.zeros_like(held))
        values.store(held)
        fence_async_shared()


@gluon.jit
def _row_bounds(span, place, TOKENS: gl.constexpr):
    """Rows of the program; where its keys stop, where rows stop seeing them, each row's last."""
    row0, _, heads = place
    _, high, _, length = span
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    row = row0 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    stop = gl.minimum(length, high * 64)
    seen = gl.minimum(length - TOKENS + 1, stop)
    return row, stop, seen, gl.minimum(length - TOKENS + row // heads, stop - 1)


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
    _publish(weights, top, ready, p16, higher, 0)
    if LAST:
        _clear_tail(left.index(0), start, stop)
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
        _clear_tail(left.index(1), start + 64, stop)
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
        _clear_tail(right.index(0), start, stop)
    acc = scaled(acc, shrink)
    acc = warpgroup_mma(weights.index(zero), right.index(zero), acc, is_async=True)
    s = warpgroup_mma_wait(1, deps=[s])
    p, peak = tile_weights(s, higher, start + 64, last, seen, scale)
    p16 = p.to(dtype)
    _publish(weights, top, ready, p16, peak, 1)
    shrink = gl.exp2(higher - peak)
    total = total * shrink + gl.sum(p, axis=1)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(empty.index(1))
    if LAST:
        _clear_tail(right.index(1), start + 64, stop)
    acc = scaled(acc, shrink)
    a = gl.convert_layout(p16, a_layout)
    acc = warpgroup_mma(a, right.index(zero + 1), acc, is_async=True)
    return acc, peak, total


@gluon.jit
def _empty_state(LATENT: gl.constexpr):
    """Numerator, running maximum and denominator of no key."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, LATENT // 2, 16])
    rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    acc = gl.zeros([64, LATENT // 2], gl.float32, layout=o_layout)
    peak = gl.full([64], -1e30, gl.float32, layout=rows)
    return acc, peak, gl.zeros([64], gl.float32, layout=rows)


@gluon.jit
def _left_group(
    q, o, lse, buffers, barriers, scale, span, place, line, out_line, out_stride,
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """Warpgroup 0: even tiles' scores, the left half of the output."""
    queries, tiles, weights, top, sums = buffers
    full, empty, ready = barriers
    dtype: gl.constexpr = q.dtype.element_ty
    _load_queries(queries, q, line, place, LATENT, ROPE)
    mbarrier.arrive(ready.index(4))
    row, stop, seen, last = _row_bounds(span, place, TOKENS)
    acc, peak, total = _empty_state(LATENT)
    start = span[0] * 64
    if span[2] > 0:
        s = _start_scores(_nothing_yet(), queries, tiles, full, 0, 0, 0, 0, ROPE)
        s = _start_scores(s, queries, tiles, full, 0, 0, 0, 1, ROPE)
        for pair in range(span[2] - 1):
            zero = pair >> 30
            acc, peak, total = _left_pair(
                s, (acc, peak, total), tiles[0], weights, top, barriers, (stop, seen, last),
                start, pair & 1, zero, scale, False, dtype,
            )  # fmt: skip
            following = (pair + 1) & 1
            s = _start_scores(_nothing_yet(), queries, tiles, full, following, zero, 0, 0, ROPE)
            acc = warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(empty.index(2))
            s = _start_scores(s, queries, tiles, full, following, zero, 0, 1, ROPE)
            start += 128
        acc, peak, total = _left_pair(
            s, (acc, peak, total), tiles[0], weights, top, barriers, (stop, seen, last),
            start, (span[2] - 1) & 1, 0, scale, True, dtype,
        )  # fmt: skip
        acc = warpgroup_mma_wait(0, deps=[acc])

    total = _shared_sum(sums, ready, total, 0)
    if SPLIT:
        log2 = gl.where(total > 0, peak + gl.log2(total), float("-inf"))
        gl.store(lse + out_line + row * out_stride, log2, mask=row < place[1])
    _store_half(o, acc, total, place, out_line, out_stride, 0, LATENT)


@gluon.jit
def _right_group(
    q, o, buffers, barriers, scale, span, place, out_line, out_stride,
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr,
):  # fmt: skip
    """Warpgroup 1: odd tiles' scores, the right half of the output."""
    queries, tiles, weights, top, sums = buffers
    full, empty, ready = barriers
    dtype: gl.constexpr = q.dtype.element_ty
    _, stop, seen, last = _row_bounds(span, place, TOKENS)
    acc, peak, total = _empty_state(LATENT)
    start = span[0] * 64
    mbarrier.wait(ready.index(4), 0)
    if span[2] > 0:
        s = _start_scores(_nothing_yet(), queries, tiles, full, 0, 0, 1, 0, ROPE)
        s = _start_scores(s, queries, tiles, full, 0, 0, 1, 1, ROPE)
        for pair in range(span[2] - 1):
            zero = pair >> 30
            acc, peak, total = _right_pair(
                s, (acc, peak, total), tiles[1], weights, top, barriers, (stop, seen, last),
                start, pair & 1, zero, scale, False, dtype,
            )  # fmt: skip
            following = (pair + 1) & 1
            acc = warpgroup_mma_wait(0, deps=[acc])
            mbarrier.arrive(empty.index(3))
            s = _start_scores(_nothing_yet(), queries, tiles, full, following, zero, 1, 0, ROPE)
            s = _start_scores(s, queries, tiles, full, following, zero, 1, 1, ROPE)
            start += 128
        acc, peak, total = _right_pair(
            s, (acc, peak, total), tiles[1], weights, top, barriers, (stop, seen, last),
            start, (span[2] - 1) & 1, 0, scale, True, dtype,
        )  # fmt: skip
        acc = warpgroup_mma_wait(0, deps=[acc])

    total = _shared_sum(sums, ready, total, 1)
    _store_half(o, acc, total, place, out_line, out_stride, LATENT // 2, LATENT)


@gluon.jit
def _shared_sum(sums, ready, total, group: gl.constexpr):
    """The denominator: each warpgroup has summed the weights of its own tiles."""
    sums.index(group).store(total)
    mbarrier.arrive(ready.index(2 + group))
    mbarrier.wait(ready.index(3 - group), 0)
    return total + sums.index(1 - group).load(total.type.layout)


@gluon.jit
def _store_half(o, acc, total, place, out_line, out_stride, first, LATENT: gl.constexpr):
    """Normalise and store columns [first, first + LATENT / 2); 0 where nothing was seen."""
    layout: gl.constexpr = acc.type.layout
    row = place[0] + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    column = first + gl.arange(0, LATENT // 2, layout=gl.SliceLayout(0, layout))
    out = scaled(acc, 1.0 / gl.maximum(total, 1e-30)).to(o.dtype.element_ty)
    at = (out_line + row * out_stride)[:, None] * LATENT + column[None, :]
    gl.store(o + at, out, mask=(row < place[1])[:, None])


@gluon.jit
def _make_buffers(
    dtype: gl.constexpr, half_map, rope_map, LATENT: gl.constexpr, ROPE: gl.constexpr
):
    """Shared memory: queries, two tiles, their weights and maxima, and the two groups' sums."""
    half: gl.constexpr = LATENT // 2
    q_l = gl.allocate_shared_memory(dtype, [1, 64, half], half_map.layout)
    q_r = gl.allocate_shared_memory(dtype, [1, 64, half], half_map.layout)
    left = gl.allocate_shared_memory(dtype, [2, 64, half], half_map.layout)
    right = gl.allocate_shared_memory(dtype, [2, 64, half], half_map.layout)
    q_pe, rope, weights = q_l, left, left
    if ROPE > 0:
        q_pe = gl.allocate_shared_memory(dtype, [1, 64, ROPE], rope_map.layout)
        rope = gl.allocate_shared_memory(dtype, [2, 64, ROPE], rope_map.layout)
    if ROPE == 64:
        weights = rope
    else:
        square: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], dtype)
        weights = gl.allocate_shared_memory(dtype, [2, 64, 64], square)
    vector: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    top = gl.allocate_shared_memory(gl.float32, [2, 64], vector)
    sums = gl.allocate_shared_memory(gl.float32, [2, 64], vector)
    return (q_l, q_r, q_pe), (left, right, rope), weights, top, sums


@gluon.jit
def _make_barriers(COUNT: gl.constexpr):
    """COUNT barriers, each for one arrival."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for index in gl.static_range(COUNT):
        mbarrier.init(barriers.index(index), count=1)
    return barriers


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

    buffers = _make_buffers(q.dtype.element_ty, half_map, rope_map, LATENT, ROPE)
    # Full and empty: the left and right half of tile 0, then of tile 1. Then weights of tiles 0
    # and 1, both sums, queries.
    barriers = (_make_barriers(4), _make_barriers(4), _make_barriers(5))
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
