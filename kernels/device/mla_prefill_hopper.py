"""MLA prefill for Hopper: two warpgroups of 64 queries each, a third warp loads keys and values.

The same computation as `mla_prefill.attend` (read that first), in Gluon: tiles arrive by the
tensor copy engine, and the scores of tile j are computed while those of tile j - 1 are still being
multiplied with its values, so that softmax and products overlap within a warpgroup (the order of
FlashAttention-3, arXiv 2407.08608, section 3.2) as well as between the two.

Sizes that fit the chip: 128 queries, tiles of 128 keys, two in flight, 208 KiB of 227.
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

from benchx_kernels.device.hopper_softmax import clear_tail, scaled, tile_weights

# Triton 3.9 calls it `async_load`; 3.6 knows only the longer name, which 3.9 refuses.
_copy_in = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@gluon.jit
def _load_tiles(
    maps, tiles, barriers, first_key, head, count,
    NOPE: gl.constexpr, ROPE: gl.constexpr, VALUE: gl.constexpr,
):  # fmt: skip
    """The loading warp: keys and then values of each tile."""
    nope_map, rope_map, value_map = maps
    nope, rope, values = tiles
    full, empty = barriers
    for step in range(count):
        slot = step % 2
        phase = (step // 2) & 1
        row = first_key + step * 128
        mbarrier.wait(empty.index(slot), phase ^ 1)
        mbarrier.expect(full.index(slot), 128 * (NOPE + ROPE) * 2)
        column = head * (NOPE + ROPE)
        _copy_in(nope_map, [row, column], full.index(slot), nope.index(slot))
        if ROPE > 0:
            _copy_in(rope_map, [row, column + NOPE], full.index(slot), rope.index(slot))
        mbarrier.wait(empty.index(2 + slot), phase ^ 1)
        mbarrier.expect(full.index(2 + slot), 128 * VALUE * 2)
        _copy_in(value_map, [row, head * VALUE], full.index(2 + slot), values.index(slot))


@gluon.jit
def _load_queries(
    q_nope, q_pe, q, row, queries, first_query, heads, head,
    NOPE: gl.constexpr, ROPE: gl.constexpr,
):  # fmt: skip
    """Copy 64 queries into shared memory; rows past the sequence become 0."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    row += gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    valid = (row < queries)[:, None]
    at = q + ((first_query + row) * heads + head)[:, None] * (NOPE + ROPE)
    column = gl.arange(0, NOPE, layout=gl.SliceLayout(0, layout))[None, :]
    q_nope.store(gl.load(at + column, mask=valid, other=0.0))
    if ROPE > 0:
        column = gl.arange(0, ROPE, layout=gl.SliceLayout(0, layout))[None, :]
        q_pe.store(gl.load(at + NOPE + column, mask=valid, other=0.0))
    fence_async_shared()


@gluon.jit
def _scores(q_nope, q_pe, tiles, full, step, ROPE: gl.constexpr):
    """Start Q K^T of a tile; fp32 [64, 128] once waited for."""
    slot = step % 2
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    s = gl.zeros([64, 128], gl.float32, layout=layout)
    mbarrier.wait(full.index(slot), (step // 2) & 1)
    nope = tiles[0].index(slot).permute((1, 0))
    s = warpgroup_mma(q_nope, nope, s, use_acc=False, is_async=True)
    if ROPE > 0:
        s = warpgroup_mma(q_pe, tiles[1].index(slot).permute((1, 0)), s, is_async=True)
    return s


@gluon.jit
def _attend_rows(
    q, o, q_nope, q_pe, tiles, barriers, scale,
    row0, queries, keys, first_query, heads, head, count,
    NOPE: gl.constexpr, ROPE: gl.constexpr, VALUE: gl.constexpr,
):  # fmt: skip
    """One warpgroup: 64 queries from `row0` of their sequence against `count` tiles."""
    full, empty = barriers
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, VALUE, 16])
    a_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, k_width=2)
    dtype: gl.constexpr = q.dtype.element_ty
    _load_queries(q_nope, q_pe, q, row0, queries, first_query, heads, head, NOPE, ROPE)
    values = tiles[2]
    last = keys - queries + row0 + gl.arange(0, 64, layout=gl.SliceLayout(1, s_layout))
    seen = keys - queries + row0 + 1
    top = gl.full([64], -1e30, gl.float32, layout=gl.SliceLayout(1, s_layout))
    acc = gl.zeros([64, VALUE], gl.float32, layout=o_layout)

    s = warpgroup_mma_wait(0, deps=[_scores(q_nope, q_pe, tiles, full, 0, ROPE)])
    mbarrier.arrive(empty.index(0))
    p, top = tile_weights(s, top, 0, last, seen, scale)
    total = gl.sum(p, axis=1)
    a = gl.convert_layout(p.to(dtype), a_layout)
    for step in range(1, count):
        done = (step - 1) % 2
        s = _scores(q_nope, q_pe, tiles, full, step, ROPE)
        mbarrier.wait(full.index(2 + done), ((step - 1) // 2) & 1)
        acc = warpgroup_mma(a, values.index(done), acc, is_async=True)
        s = warpgroup_mma_wait(1, deps=[s])
        mbarrier.arrive(empty.index(step % 2))
        p, higher = tile_weights(s, top, step * 128, last, seen, scale)
        shrink = gl.exp2(top - higher)
        total = total * shrink + gl.sum(p, axis=1)
        top = higher
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(2 + done))
        acc = scaled(acc, shrink)
        a = gl.convert_layout(p.to(dtype), a_layout)
    done = (count - 1) % 2
    mbarrier.wait(full.index(2 + done), ((count - 1) // 2) & 1)
    # Both warpgroups do it, to the same end.
    clear_tail(values.index(done), (count - 1) * 128, keys)
    acc = warpgroup_mma(a, values.index(done), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])

    row = row0 + gl.arange(0, 64, layout=gl.SliceLayout(1, o_layout))
    column = gl.arange(0, VALUE, layout=gl.SliceLayout(0, o_layout))
    out = scaled(acc, 1.0 / gl.maximum(total, 1e-30)).to(o.dtype.element_ty)
    at = ((first_query + row) * heads + head)[:, None] * VALUE + column[None, :]
    gl.store(o + at, out, mask=(row < queries)[:, None])


@gluon.jit
def _locate_block(cu_seqlens, slot, n_seqs):
    """As `mla_prefill.locate_block`, for blocks of 128."""
    low = 0
    high = n_seqs
    while high - low > 1:
        middle = (low + high) // 2
        first = (gl.load(cu_seqlens + middle) // 128 + middle).to(gl.int32)
        low = gl.where(first <= slot, middle, low)
        high = gl.where(first <= slot, high, middle)
    start = gl.load(cu_seqlens + low)
    return low, slot - (start // 128 + low).to(gl.int32)


@gluon.jit
def _buffers(
    dtype: gl.constexpr, maps, NOPE: gl.constexpr, ROPE: gl.constexpr, VALUE: gl.constexpr
):
    """Shared memory: the queries of both groups, and two tiles of keys and values."""
    nope_map, rope_map, value_map = maps
    q_nope = gl.allocate_shared_memory(dtype, [2, 64, NOPE], nope_map.layout)
    nope = gl.allocate_shared_memory(dtype, [2, 128, NOPE], nope_map.layout)
    values = gl.allocate_shared_memory(dtype, [2, 128, VALUE], value_map.layout)
    q_pe, rope = q_nope, nope
    if ROPE > 0:
        q_pe = gl.allocate_shared_memory(dtype, [2, 64, ROPE], rope_map.layout)
        rope = gl.allocate_shared_memory(dtype, [2, 128, ROPE], rope_map.layout)
    return q_nope, q_pe, (nope, rope, values)


@gluon.jit
def _barriers(ARRIVALS: gl.constexpr):
    """Barriers of the keys of tiles 0 and 1, then of their values."""
    barriers = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    for index in gl.static_range(4):
        mbarrier.init(barriers.index(index), count=ARRIVALS)
    return barriers


# Sizes are no constants to compile for: batches change from step to step.
@gluon.jit(do_not_specialize=["n_seqs", "n_slots", "heads", "heads_together"])
def attend(
    q, nope_map, rope_map, value_map, o, cu_queries, cu_keys,
    scale_log2, n_seqs, n_slots, heads, heads_together,
    NOPE: gl.constexpr, ROPE: gl.constexpr, VALUE: gl.constexpr,
):  # fmt: skip
    """128 queries of one head; arguments and order of programs as in `mla_prefill.attend`.

    The maps describe k as [Tk, H * (N + R)] in blocks of [128, N] and [128, R], and v as
    [Tk, H * V] in blocks of [128, V].
    """
    program = gl.program_id(0)
    slot = n_slots - 1 - (program // heads_together) % n_slots
    head = (program // heads_together) // n_slots * heads_together + program % heads_together
    sequence, block = _locate_block(cu_queries, slot, n_seqs)
    first_query = gl.load(cu_queries + sequence)
    queries = (gl.load(cu_queries + sequence + 1) - first_query).to(gl.int32)
    if (block * 128 >= queries) | (head >= heads):
        return
    first_key = gl.load(cu_keys + sequence).to(gl.int32)
    keys = gl.load(cu_keys + sequence + 1).to(gl.int32) - first_key
    end = gl.minimum(keys - queries + (block + 1) * 128, keys)
    count = gl.maximum((end + 127) // 128, 1)  # a block that sees nothing multiplies zeros

    maps = (nope_map, rope_map, value_map)
    q_nope, q_pe, tiles = _buffers(q.dtype.element_ty, maps, NOPE, ROPE, VALUE)
    barriers = (_barriers(1), _barriers(2))  # full, empty
    row0 = block * 128
    gl.warp_specialize(
        [
            (
                _attend_rows,
                (
                    q, o, q_nope.index(0), q_pe.index(0), tiles, barriers, scale_log2,
                    row0, queries, keys, first_query, heads, head, count, NOPE, ROPE, VALUE,
                ),
            ),
            (
                _attend_rows,
                (
                    q, o, q_nope.index(1), q_pe.index(1), tiles, barriers, scale_log2,
                    row0 + 64, queries, keys, first_query, heads, head, count, NOPE, ROPE, VALUE,
                ),
            ),
            (_load_tiles, (maps, tiles, barriers, first_key, head, count, NOPE, ROPE, VALUE)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
