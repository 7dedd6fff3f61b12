"""Gates: from what the model hands over to the log2 of the decay."""

from __future__ import annotations

import triton
import triton.language as tl

BOUNDED, SOFTPLUS, LOG, SCALAR, NONE = 0, 1, 2, 3, 4
CODES = {"bounded": BOUNDED, "softplus": SOFTPLUS, "log": LOG, "scalar": SCALAR, "none": NONE}


@triton.jit
def log2_decay(g, a_log, dt_bias, lower_bound, GATE: tl.constexpr):
    """Log2 of the decay from what the model hands over, fp32; 0 where a learned g is -inf."""
    log2_e: tl.constexpr = 1.4426950408889634
    if GATE == 0:
        rate = tl.exp2(a_log * log2_e) * log2_e
        steepest = -lower_bound * log2_e
        # steepest sigmoid(x) = 1 / (1 / steepest + e^-x / steepest), as a squared rsqrt: a
        # division costs five times as much. The factor goes into the constants.
        bias = rate * dt_bias + tl.log2(steepest)
        root = tl.rsqrt(1.0 / steepest + tl.exp2(-(rate * g + bias)))
        return -(root * root)
    elif GATE == 1:
        x = g + dt_bias
        # log(1 + e^x) without overflow: x itself once e^-x is below fp32's resolution.
        bits = tl.log2(1.0 + tl.exp2(tl.minimum(x, 20.0) * log2_e))
        return -tl.exp2(a_log * log2_e) * tl.where(x > 20.0, x * log2_e, bits)
    else:
        return g * log2_e
