"""Matrix products of 16-bit tiles, on a device and in Triton's interpreter."""

from __future__ import annotations

import triton
import triton.language as tl

# The interpreter keeps bf16 as raw bits and multiplies those; there the operands, already rounded
# to 16 bits, are widened first, which leaves the products exact, as on a device.
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def dot16(a, b):
    """a @ b with fp32 accumulation; a, b bf16 or fp16."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(a, b)


@triton.jit
def dot16_add(a, b, acc):
    """acc + a @ b, fp32."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc=acc, input_precision="ieee")
    else:
        return tl.dot(a, b, acc=acc)


@triton.jit
def to_bf16(x):
    """Round to the nearest bf16, ties to even (the interpreter's own cast truncates)."""
    if INTERPRETED:
        x = x.to(tl.float32)
        bits = x.to(tl.uint32, bitcast=True)
        finite = tl.abs(x) < float("inf")
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)
        x = tl.where(finite, rounded, bits).to(tl.float32, bitcast=True)
    return x.to(tl.bfloat16)


@triton.jit
def identity(SIZE: tl.constexpr, DTYPE: tl.constexpr):
    """The identity matrix [SIZE, SIZE]: a product with it moves a tile and is exact."""
    same = tl.arange(0, SIZE)[:, None] == tl.arange(0, SIZE)[None, :]
    return tl.where(same, 1.0, 0.0).to(DTYPE)


@triton.jit
def narrow(x, UNIT: tl.constexpr):
    """16 bits: for values of at most 1 in magnitude fp16, three bits more than bf16."""
    if UNIT:
        return x.to(tl.float16)
    else:
        return to_bf16(x)


@triton.jit
def negative(x):
    """-x of a 16-bit tile (the interpreter would negate bf16's bits)."""
    if INTERPRETED:
        return to_dtype(-x.to(tl.float32), x.dtype)
    else:
        return -x


@triton.jit
def split_bf16(x):
    """Two bf16 tiles whose sum is an fp32 one to 16 bits of mantissa."""
    high = to_bf16(x)
    return high, to_bf16(x - high.to(tl.float32))


@triton.jit
def dot_split(a, high, low, acc):
    """acc + a @ (high + low) of an fp32 tile and one that `split_bf16` took apart."""
    a_high, a_low = split_bf16(a)
    acc = dot16_add(a_low, high, acc)
    acc = dot16_add(a_high, low, acc)
    return dot16_add(a_high, high, acc)


@triton.jit
def to_dtype(x, DTYPE: tl.constexpr):
    """Round fp32 to nearest in the dtype of a tensor that is about to be stored."""
    if DTYPE == tl.bfloat16:
        return to_bf16(x)
    else:
        return x.to(DTYPE)
