"""MLA decode for Hopper with the scores of the next pair of tiles started ahead.

Tiles, warpgroups and what they hand each other are those of `mla_decode_hopper` (read that
first). What differs is when things start:

- A warpgroup starts the scores of its next tile right behind its last product of a pair, and waits
  for that product while they run, so the matrix unit has work during waits and rescaling:

    group 0   P0 | acc_l += P0 V0_l | acc_l += P1 V1_l, S2 = Q K2^T   P2 | acc_l += P2 V2_l ..
    group 1      | acc_r += P0 V0_r  P1 | acc_r += P1 V1_r, S3 = Q K3^T  | acc_r += P2 V2_r ..

- A tile arrives in pieces of WIDTH columns, each with its own barrier: the scores begin with the
  first piece.
- Only the last pair of tiles is looked through for positions that hold no token.
- With DISTANCE, the loading warp asks for the tile that many tiles on to be brought into L2, so
  that what waits for a tile's place in shared memory waits for L2 only.
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

from benchx_kernels.device.hopper_softmax import scaled, tile_weights
from benchx_kernels.device.mla_decode_hopper import (
    clear_tail,
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
def _load_half(
    maps, tiles, full, slot, row, LATENT: gl.constexpr, ROPE: gl.constexpr, WIDTH: gl.constexpr,
    SIDE: gl.constexpr,
):  # fmt: skip
    """Start the copies of one half of the tile at `row`, the rope columns with the last piece."""
    half: gl.constexpr = LATENT // 2
    pieces: gl.constexpr = half // WIDTH
    target = tiles[SIDE].index(slot)
    for piece in gl.static_range(pieces):
        arrived = full.index((2 * slot + SIDE) * pieces + piece)
        if SIDE == 1 and piece == pieces - 1 and ROPE > 0:
            mbarrier.expect(arrived, 64 * (WIDTH + ROPE) * 2)
            _copy_in(maps[1], [row, LATENT], arrived, tiles[2].index(slot))
        else:
            mbarrier.expect(arrived, 64 * WIDTH * 2)
        column = SIDE * half + piece * WIDTH
        _copy_in(maps[0], [row, column], arrived, target.slice(piece * WIDTH, WIDTH, 1))


@gluon.jit
def _bring_into_l2(address, BYTES: gl.constexpr):
    """Start a copy from memory into L2; one lane asks for all of the warp."""
    ask: gl.constexpr = (
        "{.reg .pred one; elect.sync _|one, 0xffffffff; "
        "@one cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;}"
    )
    gl.inline_asm_elementwise(
        ask, "=r,l,n", [address, gl.to_tensor(BYTES)], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _load_tiles(
    cache, maps, table, tiles, barriers, span, LATENT: gl.constexpr, ROPE: gl.constexpr,
    PAGE: gl.constexpr, WIDTH: gl.constexpr, DISTANCE: gl.constexpr,
):  # fmt: skip
    """The loading warp: each tile's left half, then its right half and rope columns.

    The order matters: a tile's rope columns give their place to its weights, which the left group
    reads last, so its left half is free before they are loaded again.
    """
    full, empty, _ = barriers
    low, high, pairs, _ = span
    for step in range(2 * pairs):
        slot = step % 2
        phase = (step // 2) & 1
        start = gl.minimum(low + step, high - 1) * 64  # a pair's second tile may not exist
        row = gl.load(table + start // PAGE) * PAGE + start % PAGE
        if DISTANCE > 0 and low + step + DISTANCE < high:
            start += DISTANCE * 64
            later = gl.load(table + start // PAGE).to(gl.int64) * PAGE + start % PAGE
            _bring_into_l2(cache + later * (LATENT + ROPE), 64 * (LATENT + ROPE) * 2)
        mbarrier.wait(empty.index(2 * slot), phase ^ 1)
        _load_half(maps, tiles, full, slot, row, LATENT, ROPE, WIDTH, 0)
        mbarrier.wait(empty.index(2 * slot + 1), phase ^ 1)
        _load_half(maps, tiles, full, slot, row, LATENT, ROPE, WIDTH, 1)


@gluon.jit
def _await_half(full, half, phase, PIECES: gl.constexpr):
    """Wait for all pieces of a half: number 2 * slot + side."""
    for piece in gl.static_range(PIECES):
        mbarrier.wait(full.index(half * PIECES + piece), phase)


@gluon.jit
def _start_scores(
    s, queries, tiles, full, phase, SLOT: gl.constexpr, SIDE: gl.constexpr, WIDTH: gl.constexpr,
    ROPE: gl.constexpr,
):  # fmt: skip
    """Start one side's part of Q K^T, the left side (0) first; one product for each piece."""
    pieces: gl.constexpr = queries[SIDE].shape[1] // WIDTH
    keys = tiles[SIDE].index(SLOT)
    for piece in gl.static_range(pieces):
        mbarrier.wait(full.index((2 * SLOT + SIDE) * pieces + piece), phase)
        a = queries[SIDE].slice(piece * WIDTH, WIDTH, 1)
        b = keys.slice(piece * WIDTH, WIDTH, 1).permute((1, 0))
        s = warpgroup_mma(a, b, s, use_acc=SIDE + piece > 0, is_async=True)
    if SIDE == 1 and ROPE > 0:
        s = warpgroup_mma(queries[2], tiles[2].index(SLOT).permute((1, 0)), s, is_async=True)
    return s


@gluon.jit
def _nothing_yet():
    """A place for scores."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    return gl.zeros([64, 64], gl.float32, layout=layout)


@gluon.jit
def _left_pair(
    s, state, left, weights, top, barriers, bounds, start, phase, scale,
    PIECES: gl.constexpr, LAST: gl.constexpr, dtype: gl.constexpr,
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
    acc = warpgroup_mma(a, left.index(0), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(empty.index(0))
    _await_half(full, 2, phase, PIECES)
    mbarrier.wait(ready.index(1), phase)
    peak = top.index(1).load(peak.type.layout)
    shrink = gl.exp2(higher - peak)
    if LAST:
        clear_tail(left.index(1), start + 64, stop)
    acc = scaled(acc, shrink)
    acc = warpgroup_mma(weights.index(1), left.index(1), acc, is_async=True)
    return acc, peak, total * shrink


@gluon.jit
def _right_pair(
    s, state, right, weights, top, barriers, bounds, start, phase, scale,
    PIECES: gl.constexpr, LAST: gl.constexpr, dtype: gl.constexpr,
):  # fmt: skip
    """Warpgroup 1 on a pair of tiles, the odd one's scores running; else as `_left_pair`."""
    acc, peak, total = state
    full, empty, ready = barriers
    stop, seen, last = bounds
    a_layout: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, k_width=2)
    _await_half(full, 1, phase, PIECES)
    mbarrier.wait(ready.index(0), phase)
    higher = top.index(0).load(peak.type.layout)
    shrink = gl.exp2(peak - higher)
    total *= shrink
    if LAST:
        clear_tail(right.index(0), start, stop)
    acc = scaled(acc, shrink)
    acc = warpgroup_mma(weights.index(0), right.index(0), acc, is_async=True)
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
    acc = warpgroup_mma(a, right.index(1), acc, is_async=True)
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
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr, WIDTH: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """Warpgroup 0: even tiles' scores, the left half of the output."""
    queries, tiles, weights, top, sums = buffers
    full, empty, ready = barriers
    pieces: gl.constexpr = LATENT // 2 // WIDTH
    dtype: gl.constexpr = q.dtype.element_ty
    load_queries(queries, q, line, place, LATENT, ROPE)
    mbarrier.arrive(ready.index(4))
    row, stop, seen, last = row_bounds(span, place, TOKENS)
    acc, peak, total = _empty_state(LATENT)
    start = span[0] * 64
    if span[2] > 0:
        s = _start_scores(_nothing_yet(), queries, tiles, full, 0, 0, 0, WIDTH, ROPE)
        s = _start_scores(s, queries, tiles, full, 0, 0, 1, WIDTH, ROPE)
        for pair in range(span[2] - 1):
            acc, peak, total = _left_pair(
                s, (acc, peak, total), tiles[0], weights, top, barriers, (stop, seen, last),
                start, pair & 1, scale, pieces, False, dtype,
            )  # fmt: skip
            following = (pair + 1) & 1
            s = _start_scores(_nothing_yet(), queries, tiles, full, following, 0, 0, WIDTH, ROPE)
            acc = warpgroup_mma_wait(pieces, deps=[acc])
            mbarrier.arrive(empty.index(2))
            s = _start_scores(s, queries, tiles, full, following, 0, 1, WIDTH, ROPE)
            start += 128
        acc, peak, total = _left_pair(
            s, (acc, peak, total), tiles[0], weights, top, barriers, (stop, seen, last),
            start, (span[2] - 1) & 1, scale, pieces, True, dtype,
        )  # fmt: skip
        acc = warpgroup_mma_wait(0, deps=[acc])

    total = shared_sum(sums, ready, total, 0)
    if SPLIT:
        log2 = gl.where(total > 0, peak + gl.log2(total), float("-inf"))
        gl.store(lse + out_line + row * out_stride, log2, mask=row < place[1])
    store_half(o, acc, total, place, out_line, out_stride, 0, LATENT)


@gluon.jit
def _right_group(
    q, o, buffers, barriers, scale, span, place, out_line, out_stride,
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr, WIDTH: gl.constexpr,
):  # fmt: skip
    """Warpgroup 1: odd tiles' scores, the right half of the output."""
    queries, tiles, weights, top, sums = buffers
    full, empty, ready = barriers
    pieces: gl.constexpr = LATENT // 2 // WIDTH
    dtype: gl.constexpr = q.dtype.element_ty
    _, stop, seen, last = row_bounds(span, place, TOKENS)
    acc, peak, total = _empty_state(LATENT)
    start = span[0] * 64
    mbarrier.wait(ready.index(4), 0)
    if span[2] > 0:
        s = _start_scores(_nothing_yet(), queries, tiles, full, 0, 1, 0, WIDTH, ROPE)
        s = _start_scores(s, queries, tiles, full, 0, 1, 1, WIDTH, ROPE)
        for pair in range(span[2] - 1):
            acc, peak, total = _right_pair(
                s, (acc, peak, total), tiles[1], weights, top, barriers, (stop, seen, last),
                start, pair & 1, scale, pieces, False, dtype,
            )  # fmt: skip
            following = (pair + 1) & 1
            acc = warpgroup_mma_wait(0, deps=[acc])
            mbarrier.arrive(empty.index(3))
            s = _start_scores(_nothing_yet(), queries, tiles, full, following, 1, 0, WIDTH, ROPE)
            s = _start_scores(s, queries, tiles, full, following, 1, 1, WIDTH, ROPE)
            start += 128
        acc, peak, total = _right_pair(
            s, (acc, peak, total), tiles[1], weights, top, barriers, (stop, seen, last),
            start, (span[2] - 1) & 1, scale, pieces, True, dtype,
        )  # fmt: skip
        acc = warpgroup_mma_wait(0, deps=[acc])

    total = shared_sum(sums, ready, total, 1)
    store_half(o, acc, total, place, out_line, out_stride, LATENT // 2, LATENT)


# Sizes are no constants to compile for: batches change from step to step.
@gluon.jit(do_not_specialize=["rows", "heads", "table_width", "n_splits"])
def attend(
    q, cache, piece_map, rope_map, table, seqlens, o, lse,
    scale_log2, rows, heads, table_width, n_splits,
    TOKENS: gl.constexpr, LATENT: gl.constexpr, ROPE: gl.constexpr, PAGE: gl.constexpr,
    WIDTH: gl.constexpr, DISTANCE: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """64 rows of one sequence against one split of its keys; arguments as in `mla_decode.attend`.

    `piece_map` and `rope_map` describe the cache as [slots, LATENT + ROPE] in blocks of
    [64, WIDTH] and [64, ROPE]; WIDTH divides LATENT / 2.
    """
    gl.static_assert(PAGE % 64 == 0)
    gl.static_assert((LATENT // 2) % WIDTH == 0)
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
    out_line = line * n_splits + split if SPLIT else line
    out_stride = n_splits if SPLIT else 1

    buffers = make_buffers(q.dtype.element_ty, piece_map, rope_map, LATENT, ROPE)
    # Full: pieces of the left and right half of tile 0, then of tile 1. Empty: those halves.
    # Then weights of tiles 0 and 1, both sums, queries.
    barriers = (make_barriers(2 * LATENT // WIDTH), make_barriers(4), make_barriers(5))
    maps, table = (piece_map, rope_map), table + sequence * table_width
    gl.warp_specialize(
        [
            (
                _left_group,
                (
                    q, o, lse, buffers, barriers, scale_log2, span, place, line,
                    out_line, out_stride, TOKENS, LATENT, ROPE, WIDTH, SPLIT,
                ),
            ),
            (
                _right_group,
                (
                    q, o, buffers, barriers, scale_log2, span, place,
                    out_line, out_stride, TOKENS, LATENT, ROPE, WIDTH,
                ),
            ),
            (
                _load_tiles,
                (
                    cache, maps, table, buffers[1], barriers, span,
                    LATENT, ROPE, PAGE, WIDTH, DISTANCE,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
