"""MLA decode for Hopper: two warpgroups share the work on every pair of tiles, a third warp loads.

The same computation as `mla_decode.attend` (read that first), in Gluon, because a register file
holds 64 rows x 512 value columns only when two warpgroups split them, and plain Triton then makes
both compute every score. Here warpgroup w computes the scores of the tiles of parity w, all
columns of q and row, and accumulates half w of the value columns of every tile:

    group 0   S0 = Q K0^T   P0          | acc_l += P0 V0_l  ........  | acc_l += P1 V1_l
    group 1   S1 = Q K1^T       ......  | acc_r += P0 V0_r  P1        | acc_r += P1 V1_r

so one group's softmax runs beside the other's products. What they hand each other is a tile's
weights (in the place of its rope columns, which only its scores need) and the running maximum up
to it. A tile's halves are loaded again as soon as their only reader is done with them.

Sizes that fit the chip: 64 rows, tiles of 64 keys, two tiles in flight, 216 KiB of 227.
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
    """The loading warp: each tile's left half, then its right half and rope columns."""
    left, right, rope = tiles
    full, empty, _ = barriers
    low, high, pairs, _ = span
    half: gl.constexpr = LATENT // 2
    for step in range(2 * pairs):
        slot = step % 2
        phase = (step // 2) & 1
        start = gl.minimum(low + step, high - 1) * 64  # a pair's second tile may not exist
        row = gl.load(table + start // PAGE) * PAGE + start % PAGE
        mbarrier.wait(empty.index(slot), phase ^ 1)
        mbarrier.expect(full.index(slot), 64 * half * 2)
        _copy_in(maps[0], [row, 0], full.index(slot), left.index(slot))
        mbarrier.wait(empty.index(2 + slot), phase ^ 1)
        mbarrier.expect(full.index(2 + slot), 64 * (half + ROPE) * 2)
        _copy_in(maps[0], [row, half], full.index(2 + slot), right.index(slot))
        if ROPE > 0:
            _copy_in(maps[1], [row, LATENT], full.index(2 + slot), rope.index(slot))


@gluon.jit
def load_queries(queries, q, line, place, LATENT: gl.constexpr, ROPE: gl.constexpr):
    """Copy 64 rows of q into shared memory; rows that don't exist become 0."""
    half: gl.constexpr = LATENT // 2
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    row = place[0] + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    valid = (row < place[1])[:, None]
    at = q + (line + row)[:, None] * (LATENT + ROPE)
    column = gl.arange(0, half, layout=gl.SliceLayout(0, layout))[None, :]
    queries[0].store(gl.load(at + column, mask=valid, other=0.0))
    queries[1].store(gl.load(at + half + column, mask=valid, other=0.0))
    if ROPE > 0:
        column = gl.arange(0, ROPE, layout=gl.SliceLayout(0, layout))[None, :]
        queries[2].store(gl.load(at + LATENT + column, mask=valid, other=0.0))
    fence_async_shared()


@gluon.jit
def _scores(queries, tiles, full, slot, phase, ROPE: gl.constexpr):
    """Start Q K^T of the tile in `slot`; fp32 [64, 64] once waited for."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    s = gl.zeros([64, 64], gl.float32, layout=layout)
    mbarrier.wait(full.index(slot), phase)
    keys = tiles[0].index(slot).permute((1, 0))
    s = warpgroup_mma(queries[0], keys, s, use_acc=False, is_async=True)
    mbarrier.wait(full.index(2 + slot), phase)
    s = warpgroup_mma(queries[1], tiles[1].index(slot).permute((1, 0)), s, is_async=True)
    if ROPE > 0:
        s = warpgroup_mma(queries[2], tiles[2].index(slot).permute((1, 0)), s, is_async=True)
    return s


@gluon.jit
def publish(weights, top, ready, p, higher, slot):
    """Hand a tile's weights and running maximum to the other warpgroup."""
    weights.index(slot).store(p)
    top.index(slot).store(higher)
    fence_async_shared()
    mbarrier.arrive(ready.index(slot))


@gluon.jit
def clear_tail(values, start, stop):
    """Zero the rows of positions from `stop` on: a weight of 0 times a NaN there is a NaN."""
    if start + 64 > stop:
        layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
        position = start + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
        held = values.load(layout)
        held = gl.where((position < stop)[:, None], held, gl.zeros_like(held))
        values.store(held)
        fence_async_shared()


@gluon.jit
def row_bounds(span, place, TOKENS: gl.constexpr):
    """Rows of the program; where its keys stop, where rows stop seeing them, each row's last."""
    row0, _, heads = place
    _, high, _, length = span
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    row = row0 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    stop = gl.minimum(length, high * 64)
    seen = gl.minimum(length - TOKENS + 1, stop)
    return row, stop, seen, gl.minimum(length - TOKENS + row // heads, stop - 1)


@gluon.jit
def _left_group(
    q, o, lse, buffers, barriers, scale, span, place, line, out_line, out_stride,
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Warpgroup 0: even tiles' scores, the left half of the output."""
    queries, tiles, weights, top, sums = buffers
    full, empty, ready = barriers
    half: gl.constexpr = LATENT // 2
    rows: gl.constexpr = gl.SliceLayout(1, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, half, 16])
    a_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, k_width=2)
    load_queries(queries, q, line, place, LATENT, ROPE)
    mbarrier.arrive(ready.index(4))
    row, stop, seen, last = row_bounds(span, place, TOKENS)
    left = tiles[0]
    peak = gl.full([64], -1e30, gl.float32, layout=rows)
    total = gl.zeros([64], gl.float32, layout=rows)
    acc = gl.zeros([64, half], gl.float32, layout=o_layout)
    for pair in range(span[2]):
        phase = pair & 1
        start = (span[0] + 2 * pair) * 64
        s = warpgroup_mma_wait(0, deps=[_scores(queries, tiles, full, 0, phase, ROPE)])
        p, higher = tile_weights(s, peak, start, last, seen, scale)
        p16 = p.to(q.dtype.element_ty)
        publish(weights, top, ready, p16, higher, 0)
        clear_tail(left.index(0), start, stop)
        shrink = gl.exp2(peak - higher)
        total = total * shrink + gl.sum(p, axis=1)
        acc = scaled(acc, shrink)
        a = gl.convert_layout(p16, a_layout)
        acc = warpgroup_mma(a, left.index(0), acc, is_async=True)
        mbarrier.wait(full.index(1), phase)
        mbarrier.wait(ready.index(1), phase)
        peak = top.index(1).load(rows)
        shrink = gl.exp2(higher - peak)
        total *= shrink
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(0))
        clear_tail(left.index(1), start + 64, stop)
        acc = scaled(acc, shrink)
        acc = warpgroup_mma(weights.index(1), left.index(1), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(1))

    total = shared_sum(sums, ready, total, 0)
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
    queries, tiles, weights, top, sums = buffers
    full, empty, ready = barriers
    half: gl.constexpr = LATENT // 2
    rows: gl.constexpr = gl.SliceLayout(1, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, half, 16])
    a_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, k_width=2)
    _, stop, seen, last = row_bounds(span, place, TOKENS)
    right = tiles[1]
    peak = gl.full([64], -1e30, gl.float32, layout=rows)
    total = gl.zeros([64], gl.float32, layout=rows)
    acc = gl.zeros([64, half], gl.float32, layout=o_layout)
    mbarrier.wait(ready.index(4), 0)
    for pair in range(span[2]):
        phase = pair & 1
        start = (span[0] + 2 * pair + 1) * 64
        s = _scores(queries, tiles, full, 1, phase, ROPE)
        mbarrier.wait(full.index(2), phase)
        mbarrier.wait(ready.index(0), phase)
        higher = top.index(0).load(rows)
        shrink = gl.exp2(peak - higher)
        total *= shrink
        clear_tail(right.index(0), start - 64, stop)
        acc = scaled(acc, shrink)
        acc = warpgroup_mma(weights.index(0), right.index(0), acc, is_async=True)
        s = warpgroup_mma_wait(1, deps=[s])
        p, peak = tile_weights(s, higher, start, last, seen, scale)
        p16 = p.to(q.dtype.element_ty)
        publish(weights, top, ready, p16, peak, 1)
        shrink = gl.exp2(higher - peak)
        total = total * shrink + gl.sum(p, axis=1)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(2))
        clear_tail(right.index(1), start, stop)
        acc = scaled(acc, shrink)
        a = gl.convert_layout(p16, a_layout)
        acc = warpgroup_mma(a, right.index(1), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(3))

    total = shared_sum(sums, ready, total, 1)
    store_half(o, acc, total, place, out_line, out_stride, half, LATENT)


@gluon.jit
def shared_sum(sums, ready, total, group: gl.constexpr):
    """The denominator: each warpgroup has summed the weights of its own tiles."""
    sums.index(group).store(total)
    mbarrier.arrive(ready.index(2 + group))
    mbarrier.wait(ready.index(3 - group), 0)
    return total + sums.index(1 - group).load(total.type.layout)


@gluon.jit
def store_half(o, acc, total, place, out_line, out_stride, first, LATENT: gl.constexpr):
    """Normalise and store columns [first, first + LATENT / 2); 0 where nothing was seen."""
    layout: gl.constexpr = acc.type.layout
    row = place[0] + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    column = first + gl.arange(0, LATENT // 2, layout=gl.SliceLayout(0, layout))
    out = scaled(acc, 1.0 / gl.maximum(total, 1e-30)).to(o.dtype.element_ty)
    at = (out_line + row * out_stride)[:, None] * LATENT + column[None, :]
    gl.store(o + at, out, mask=(row < place[1])[:, None])


@gluon.jit
def make_buffers(dtype: gl.constexpr, half_map, rope_map, LATENT: gl.constexpr, ROPE: gl.constexpr):
    """Shared memory: queries, two tiles, their weights and maxima, and the two groups' sums."""
    half: gl.constexpr = LATENT // 2
    q_l = gl.allocate_shared_memory(dtype, [64, half], half_map.layout)
    q_r = gl.allocate_shared_memory(dtype, [64, half], half_map.layout)
    left = gl.allocate_shared_memory(dtype, [2, 64, half], half_map.layout)
    right = gl.allocate_shared_memory(dtype, [2, 64, half], half_map.layout)
    q_pe, rope, weights = q_l, left, left
    if ROPE > 0:
        q_pe = gl.allocate_shared_memory(dtype, [64, ROPE], rope_map.layout)
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
def make_barriers(COUNT: gl.constexpr):
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

    buffers = make_buffers(q.dtype.element_ty, half_map, rope_map, LATENT, ROPE)
    # Of tiles 0 and 1 left, then right (twice); weights of tiles 0 and 1, both sums, queries.
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
