"""The gate of a linear-attention layer, as handed to the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

GateKind = Literal["bounded", "softplus", "log", "scalar", "none"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """How decay enters the recurrence.

    Attributes:
        kind: `bounded`: lower_bound * sigmoid(exp(a_log) * (g + dt_bias)); `softplus`:
            -exp(a_log) * softplus(g + dt_bias); `log`: g is the log decay; `scalar`: one log
            decay a head; `none` (arXiv 2510.26692, section 4).
        g: [T, H, K], or [T, H] for `scalar`; None for `none`.
        a_log: fp32 [H], for `bounded` and `softplus`.
        dt_bias: fp32 [H, K], likewise.
        lower_bound: Smallest log decay of `bounded`, nats.
    """

    kind: GateKind
    g: torch.Tensor | None = None
    a_log: torch.Tensor | None = None
    dt_bias: torch.Tensor | None = None
    lower_bound: float = -5.0
