"""Device code of the short causal convolution: a program per block of tokens and channels."""

import triton
import triton.language as tl


@triton.jit
def short_conv(
    x, taps, window, y, tokens, channels, stride_x, stride_window,
    WIDTH: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """SiLU of the convolution of x [B, S, channels] behind window [B, WIDTH - 1, channels].

    Rows of x and of the window are `stride_x` and `stride_window` elements apart; y is contiguous.
    Grid: (blocks of tokens, blocks of channels, sequences).
    """
    sequence = tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = c < channels
    total = tl.zeros((BLOCK_T, BLOCK_C), dtype=tl.float32)
    for tap in tl.static_range(WIDTH):
        weight = tl.load(taps + c * WIDTH + tap, mask=inside, other=0.0).to(tl.float32)
        at = t + (tap - (WIDTH - 1))
        here = sequence * tokens + at.to(tl.int64)
        now = tl.load(
            x + here[:, None] * stride_x + c[None, :],
            mask=((at >= 0) & (at < tokens))[:, None] & inside[None, :],
            other=0.0,
        )
        past = sequence * (WIDTH - 1) + (at + (WIDTH - 1)).to(tl.int64)
        before = tl.load(
            window + past[:, None] * stride_window + c[None, :],
            mask=(at < 0)[:, None] & inside[None, :],
            other=0.0,
        )
        total += (now.to(tl.float32) + before.to(tl.float32)) * weight[None, :]
    total = total * tl.sigmoid(total)
    place = y + (sequence * tokens + t.to(tl.int64))[:, None] * channels + c[None, :]
    tl.store(place, total.to(y.dtype.element_ty), mask=(t < tokens)[:, None] & inside[None, :])
