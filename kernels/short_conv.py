"""The short causal convolution in front of KDA, one filter per channel, then SiLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def short_conv(x: Tensor, taps: Tensor, window: Tensor) -> Tensor:
    """SiLU of the causal convolution of x behind `window`; the window moves on.

    Args:
        x: [B, S, channels].
        taps: [channels, width]; the last tap meets the newest token.
        window: [B, width - 1, channels], the inputs before x; updated in place.

    Returns:
        [B, S, channels] in x's dtype.
    """
    tokens, width = x.shape[1], taps.shape[1]
    padded = torch.cat([window.to(x.dtype), x], dim=1)
    weights = taps.to(x.dtype)
    y = padded[:, :tokens] * weights[:, 0]
    for tap in range(1, width):
        y = torch.addcmul(y, padded[:, tap : tap + tokens], weights[:, tap])
    if width > 1:
        window.copy_(padded[:, tokens:])
    return F.silu(y)
