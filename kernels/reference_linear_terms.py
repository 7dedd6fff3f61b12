"""What the linear-attention family computes before its recurrence: gates, beta and the L2 norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

L2_EPS = 1e-6
"""Added to the sum of squares under the root, as FLA and FlashKDA do."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Operands of the recurrence, all in one dtype; T tokens, H heads, widths K and V.

    Attributes:
        q: [T, H, K], normalised and scaled.
        k: [T, H, K], normalised.
        v: [T, H, V].
        log_decay: [T, H, K] (a gate per channel), [T, H, 1] (a gate per head), or None (no gate).
        beta: [T, H] in (0, 1), or None (no delta rule).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    beta: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outputs of a prefill: `o` [T, H, V] and `final_state` [N, H, V, K], in the terms' dtype."""

    o: Tensor
    final_state: Tensor


def activate(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta_logits: Tensor | None,
    *,
    gate: str,
    a_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float,
    scale: float,
    qk_l2norm: bool,
    dtype: torch.dtype,
) -> Terms:
    """Upcast raw inputs to `dtype` and turn them into the terms of the recurrence.

    Shapes as in `Terms`; `g` and `gate` as in `log_decay`; `beta_logits` [T, H] or None.
    """
    q, k = q.to(dtype), k.to(dtype)
    if qk_l2norm:
        q, k = l2_normalised(q), l2_normalised(k)
    return Terms(
        q=q * scale,
        k=k,
        v=v.to(dtype),
        log_decay=log_decay(
            g, gate=gate, a_log=a_log, dt_bias=dt_bias, lower_bound=lower_bound, dtype=dtype
        ),
        beta=None if beta_logits is None else beta_logits.to(dtype).sigmoid(),
    )


def l2_normalised(x: Tensor) -> Tensor:
    """`x / sqrt(sum(x ** 2) + 1e-6)` over the last dimension."""
    return x * (x.square().sum(-1, keepdim=True) + L2_EPS).rsqrt()


def log_decay(
    g: Tensor | None,
    *,
    gate: str,
    a_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float,
    dtype: torch.dtype,
) -> Tensor | None:
    """Log decay (<= 0) from the gate input.

    Args:
        g: [T, H, K] logits (`bounded`, `softplus`), [T, H, K] or [T, H] log decay (`log`), or
            None (`none`).
        gate: `bounded`: lower_bound * sigmoid(exp(a_log) * (g + dt_bias)), Kimi K3's form;
            `softplus`: -exp(a_log) * softplus(g + dt_bias), Kimi Linear's; `log`: g itself.
        a_log: [H], for the two forms that need it.
        dt_bias: [H, K], likewise.
        lower_bound: Smallest log decay of `bounded`.
        dtype: Computed and returned in.

    Raises:
        ValueError: When `gate` is unknown or its inputs are not all there.
    """
    if gate == "none":
        return None
    if g is None:
        raise ValueError(f"gate {gate!r} needs g")
    g = g.to(dtype)
    if gate == "log":
        return g if g.dim() == 3 else g.unsqueeze(-1)
    if gate not in ("bounded", "softplus"):
        raise ValueError(f"gate {gate!r} is none of bounded, softplus, log, none")
    if a_log is None or dt_bias is None:
        raise ValueError(f"gate {gate!r} needs a_log and dt_bias")
    rate, logits = a_log.to(dtype).exp()[:, None], g + dt_bias.to(dtype)
    if gate == "bounded":
        return lower_bound * (rate * logits).sigmoid()
    # Not F.softplus: above 20 it returns its argument, 2e-9 off, which fp64 would notice.
    return -rate * torch.logaddexp(logits, logits.new_zeros(()))
