"""The short causal convolution in front of KDA, one filter per channel, then SiLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ._arguments import check_current, check_kind

_BLOCK_TOKENS, _BLOCK_CHANNELS = 32, 128


def short_conv(x: Tensor, taps: Tensor, window: Tensor) -> Tensor:
    """SiLU of the causal convolution of x behind `window`; the window moves on.

    One fused kernel on a GPU; torch operations elsewhere and in fp64.

    Args:
        x: [B, S, channels]; on a GPU channels are contiguous, and so are the tokens of all
            sequences, and the window's likewise.
        taps: [channels, width], contiguous; the last tap meets the newest token.
        window: [B, width - 1, channels], the inputs before x; updated in place.

    Returns:
        [B, S, channels] in x's dtype.

    Raises:
        ValueError: Before the launch, for shapes, devices or strides that do not fit.
    """
    _check(x, taps, window)
    fused = x.is_cuda and x.dtype is not torch.float64
    return _fused(x, taps, window) if fused else _in_torch(x, taps, window)


def _check(x: Tensor, taps: Tensor, window: Tensor) -> None:
    for name, value in (("x", x), ("taps", taps), ("window", window)):
        check_kind(name, value, Tensor)
    shapes = f"x is {tuple(x.shape)}, taps {tuple(taps.shape)}, window {tuple(window.shape)}"
    if x.dim() != 3 or taps.dim() != 2 or taps.shape[1] < 1 or taps.shape[0] != x.shape[2]:
        raise ValueError(f"{shapes}; expected [B, S, channels] and [channels, width]")
    held = (x.shape[0], taps.shape[1] - 1, x.shape[2])
    if tuple(window.shape) != held:
        raise ValueError(f"{shapes}; expected a window {held}")
    if len({x.device, taps.device, window.device}) > 1:
        raise ValueError(f"x is on {x.device}, taps on {taps.device}, window on {window.device}")


def _rows_follow(x: Tensor) -> bool:
    """Whether channels lie densely, and rows of all sequences at one distance from each other."""
    sequences, rows, channels = x.shape
    dense = channels < 2 or x.stride(2) == 1
    return dense and (sequences < 2 or rows < 1 or x.stride(0) == rows * x.stride(1))


def _in_torch(x: Tensor, taps: Tensor, window: Tensor) -> Tensor:
    tokens, width = x.shape[1], taps.shape[1]
    padded = torch.cat([window.to(x.dtype), x], dim=1)
    weights = taps.to(x.dtype)
    y = padded[:, :tokens] * weights[:, 0]
    for tap in range(1, width):
        y = torch.addcmul(y, padded[:, tap : tap + tokens], weights[:, tap])
    if width > 1:
        window.copy_(padded[:, tokens:])
    return F.silu(y)


def _fused(x: Tensor, taps: Tensor, window: Tensor) -> Tensor:
    import triton

    from .device import short_conv as device

    check_current(x.device)
    if not (taps.is_contiguous() and _rows_follow(x) and _rows_follow(window)):
        strides = f"{x.stride()}, {taps.stride()}, {window.stride()}"
        raise ValueError(f"strides are {strides}; expected rows that follow each other")
    sequences, tokens, channels = x.shape
    width = taps.shape[1]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(tokens, _BLOCK_TOKENS), triton.cdiv(channels, _BLOCK_CHANNELS), sequences)
    device.short_conv[grid](
        x, taps, window, y, tokens, channels, x.stride(1), window.stride(1),
        WIDTH=width, BLOCK_T=_BLOCK_TOKENS, BLOCK_C=_BLOCK_CHANNELS, num_warps=4,
    )  # fmt: skip
    kept = torch.cat([window, x[:, -(width - 1) :].to(window.dtype)], dim=1) if width > 1 else None
    if kept is not None:
        window.copy_(kept[:, -(width - 1) :])
    return y
