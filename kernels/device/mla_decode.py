"""Attention of a few query tokens on a paged latent cache, absorbed form, split over the keys.

All heads share one cached row of a latent part c and a rope part: the row is the key, its latent
part also the value (DeepSeek-V2, arXiv 2405.04434, section 2.1, W_UK absorbed into q):

    s = q_c c^T + q_pe pe^T        o = softmax(scale * s) c

so a program loads each tile of rows once and multiplies with it twice. Heads and query tokens are
rows of one matrix [S * H, C + R]; a program takes BLOCK_M of them, few enough that a handful of
heads wastes no tensor-core rows. Neighbouring programs share the cached tile through L2.

Each sequence is cut into equal splits, whatever its length. `attend` leaves of every split
the normalised output and log2 of the softmax's denominator; `merge` weights them by those.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.dot import dot16, dot16_add, to_dtype


@triton.jit
def _load_rows(
    cache, slots, inside, first, WIDTH: tl.constexpr, ROW: tl.constexpr, MASKED: tl.constexpr
):
    """Columns [first, first + WIDTH) of the cached rows at `slots`; 0 where not `inside`.

    Zeros, not whatever lies there: a weight of 0 times a NaN is a NaN.
    """
    at = slots[:, None] * ROW + (first + tl.arange(0, WIDTH))[None, :]
    if MASKED:
        return tl.load(cache + at, mask=inside[:, None], other=0.0)
    else:
        return tl.load(cache + at)


@triton.jit
def _find_pages(table, start, length, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Page of a tile of positions that lie in one, else the pages of all of them; int32.

    Past the sequence's end the page of its first position, which exists.
    """
    if PAGE % BLOCK_N == 0:
        return tl.load(table + tl.where(start < length, start, 0) // PAGE)
    else:
        position = start + tl.arange(0, BLOCK_N)
        return tl.load(table + tl.where(position < length, position, 0) // PAGE)


@triton.jit
def _attend_tile(
    q_c, q_pe, cache, pages, start, length, last, scale, top, total, acc,
    LATENT: tl.constexpr, ROPE: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """One tile of keys: the running maximum, denominator and numerator with it.

    `last` [BLOCK_M] is the last position that each row sees.
    """
    position = start + tl.arange(0, BLOCK_N)
    inside = position < length
    slots = pages.to(tl.int64) * PAGE + position % PAGE  # int64: it passes 2^31
    width: tl.constexpr = LATENT + ROPE
    c = _load_rows(cache, slots, inside, 0, LATENT, width, MASKED).to(q_c.dtype)
    s = dot16(q_c, tl.trans(c))
    if ROPE > 0:
        pe = _load_rows(cache, slots, inside, LATENT, ROPE, width, MASKED).to(q_c.dtype)
        s = dot16_add(q_pe, tl.trans(pe), s)
    s *= scale
    if MASKED:
        s = tl.where(position[None, :] <= last[:, None], s, float("-inf"))
    higher = tl.maximum(top, tl.max(s, axis=1))
    p = tl.exp2(s - higher[:, None])
    shrink = tl.exp2(top - higher)
    total = total * shrink + tl.sum(p, axis=1)
    acc = dot16_add(to_dtype(p, q_c.dtype), c, acc * shrink[:, None])
    return higher, total, acc


# Sizes are no constants to compile for: batches change from step to step.
@triton.jit(do_not_specialize=["rows", "heads", "table_width", "n_splits"])
def attend(
    q, cache, table, seqlens, o, lse, scale_log2, rows, heads, table_width, n_splits,
    TOKENS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of one sequence against one split of its keys.

    q [B, rows, C + R]; cache [slots, C + R]; table [B, table_width]; o [B, rows, splits, C] and
    lse [B, rows, splits] fp32, or without SPLIT o [B, rows, C] and no lse.
    """
    split = tl.program_id(1)
    sequence = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    valid = row < rows
    line = sequence * rows + row
    column = tl.arange(0, LATENT)
    at = line[:, None] * (LATENT + ROPE)
    q_c = tl.load(q + at + column[None, :], mask=valid[:, None], other=0.0)
    q_pe = q_c
    if ROPE > 0:
        rope = LATENT + tl.arange(0, ROPE)
        q_pe = tl.load(q + at + rope[None, :], mask=valid[:, None], other=0.0)

    length = tl.minimum(tl.load(seqlens + sequence), table_width * PAGE)
    last = length - TOKENS + row // heads
    tiles = tl.cdiv(length, BLOCK_N)
    each = tl.cdiv(tiles, n_splits)
    low = split * each
    high = tl.minimum(low + each, tiles)
    full = tl.minimum(tl.maximum(length - TOKENS + 1, 0) // BLOCK_N, high)  # seen by every row

    table += sequence * table_width
    top = tl.full([BLOCK_M], -1e30, tl.float32)  # finite: -inf minus -inf is a NaN
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, LATENT], tl.float32)
    # Pages one tile ahead: a lookup in the loop's own chain of loads would halve its pipeline.
    pages = _find_pages(table, low * BLOCK_N, length, PAGE, BLOCK_N)
    for tile in tl.range(low, full, num_stages=STAGES):
        following = _find_pages(table, (tile + 1) * BLOCK_N, length, PAGE, BLOCK_N)
        top, total, acc = _attend_tile(
            q_c, q_pe, cache, pages, tile * BLOCK_N, length, last, scale_log2, top, total, acc,
            LATENT, ROPE, PAGE, BLOCK_N, False,
        )  # fmt: skip
        pages = following
    for tile in tl.range(tl.maximum(low, full), high, num_stages=1):
        pages = _find_pages(table, tile * BLOCK_N, length, PAGE, BLOCK_N)
        top, total, acc = _attend_tile(
            q_c, q_pe, cache, pages, tile * BLOCK_N, length, last, scale_log2, top, total, acc,
            LATENT, ROPE, PAGE, BLOCK_N, True,
        )  # fmt: skip
    out = acc / tl.maximum(total, 1e-30)[:, None]
    if SPLIT:
        line = line * n_splits + split
        log2 = top + tl.log2(tl.maximum(total, 1e-30))
        tl.store(lse + line, tl.where(total > 0, log2, float("-inf")), mask=valid)
    at = line[:, None] * LATENT + column[None, :]
    tl.store(o + at, to_dtype(out, o.dtype.element_ty), mask=valid[:, None])


@triton.jit(do_not_specialize=["n_splits"])
def merge(
    partial, lse, o, n_splits,
    LATENT: tl.constexpr, BLOCK_C: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """One row: partial [rows, splits, C] and lse [rows, splits] to o [rows, C]."""
    line = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    split = tl.arange(0, SPLITS)
    inside = split < n_splits
    log2 = tl.load(lse + line * n_splits + split, mask=inside, other=float("-inf"))
    highest = tl.maximum(tl.max(log2, axis=0), -1e30)  # finite for a row that sees nothing
    weight = tl.exp2(log2 - highest)
    at = (line * n_splits + split)[:, None] * LATENT + column[None, :]
    part = tl.load(partial + at, mask=inside[:, None], other=0.0)
    out = tl.sum(part * weight[:, None], axis=0) / tl.maximum(tl.sum(weight, axis=0), 1e-30)
    tl.store(o + line * LATENT + column, to_dtype(out, o.dtype.element_ty))
