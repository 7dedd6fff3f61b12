"""Parts of `mla_decode_hopper` that hold no schedule: memory, rows, weights, results."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from benchx_kernels.device.hopper_softmax import scaled


@gluon.jit
def make_buffers(dtype: gl.constexpr, half_map, rope_map, LATENT: gl.constexpr, ROPE: gl.constexpr):
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
def make_barriers(COUNT: gl.constexpr):
    """COUNT barriers, each for one arrival."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for index in gl.static_range(COUNT):
        mbarrier.init(barriers.index(index), count=1)
    return barriers


@gluon.jit
def load_queries(queries, q, line, place, LATENT: gl.constexpr, ROPE: gl.constexpr):
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
def empty_state(LATENT: gl.constexpr):
    """Numerator, running maximum and denominator of no key."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, LATENT // 2, 16])
    rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    acc = gl.zeros([64, LATENT // 2], gl.float32, layout=o_layout)
    peak = gl.full([64], -1e30, gl.float32, layout=rows)
    return acc, peak, gl.zeros([64], gl.float32, layout=rows)


@gluon.jit
def publish(weights, top, ready, p, higher, slot):
    """Hand a tile's weights and running maximum to the other warpgroup."""
    weights.index(slot).store(p)
    top.index(slot).store(higher)
    fence_async_shared()
    mbarrier.arrive(ready.index(slot))


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
