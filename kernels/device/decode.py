"""One decode step of KDA: gate, norm, state update and read in one pass over the state.

Per sequence and head, for each of the step's tokens (arXiv 2510.26692, section 3):

    S <- S diag(2^g)     u = beta (v - S k)     S <- S + u k^T     o = scale * S q

with S [V, K]. Rows of S are independent, so a program holds BLOCK_V of them in registers and the
state crosses the memory bus once each way however many tokens there are: the step is bound by
those bytes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from benchx_kernels.device.dot import to_dtype
from benchx_kernels.device.gates import log2_decay


@triton.jit
def _unit(x, L2_NORM: tl.constexpr):
    """A vector over sqrt(sum(x^2) + 1e-6)."""
    if L2_NORM:
        x *= tl.rsqrt(tl.sum(x * x, axis=0) + 1e-6)
    return x


@triton.jit(do_not_specialize=["heads"])
def decode_step(
    q, k, v, g, beta, a_log, dt_bias, state, slots, o,
    scale, lower_bound, heads,
    TOKENS: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_V: tl.constexpr,
    GATE: tl.constexpr, L2_NORM: tl.constexpr, V_FIRST: tl.constexpr, HAS_SLOTS: tl.constexpr,
):  # fmt: skip
    """BLOCK_V rows of one head's state. Inputs [B, TOKENS, H, *]; state [slots, H, V, K]."""
    first = tl.program_id(0) * BLOCK_V
    head = tl.program_id(1)
    sequence = tl.program_id(2).to(tl.int64)
    slot = sequence
    if HAS_SLOTS:
        slot = tl.load(slots + sequence).to(tl.int64)
    channel = tl.arange(0, K)
    row = first + tl.arange(0, BLOCK_V)
    base = state + (slot * heads + head) * K * V
    if V_FIRST:
        window = base + row[:, None] * K + channel[None, :]
    else:
        window = base + channel[None, :] * V + row[:, None]
    s = tl.load(window).to(tl.float32)
    rate = 0.0
    bias = tl.zeros([K], tl.float32)
    if GATE <= 1:
        rate = tl.load(a_log + head)
        bias = tl.load(dt_bias + head * K + channel)
    for token in tl.static_range(TOKENS):
        line = (sequence * TOKENS + token) * heads + head
        raw = tl.load(g + line * K + channel).to(tl.float32)
        key = _unit(tl.load(k + line * K + channel).to(tl.float32), L2_NORM)
        query = _unit(tl.load(q + line * K + channel).to(tl.float32), L2_NORM) * scale
        value = tl.load(v + line * V + row).to(tl.float32)
        logit = tl.load(beta + line).to(tl.float32)
        s *= tl.exp2(log2_decay(raw, rate, bias, lower_bound, GATE))[None, :]
        rest = value - tl.sum(s * key[None, :], axis=1)
        rest /= 1.0 + tl.exp2(-logit * 1.4426950408889634)
        s += rest[:, None] * key[None, :]
        out = tl.sum(s * query[None, :], axis=1)
        tl.store(o + line * V + row, to_dtype(out, o.dtype.element_ty))
    tl.store(window, to_dtype(s, state.dtype.element_ty))
