"""KDA decode: a few new tokens per sequence against a recurrent state that is updated in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.ops.linear_inputs import Gate, TensorFields

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodeInputs(TensorFields):
    """One decode step of B sequences with S new tokens each (`tokens`, 1 unless speculating).

    Attributes:
        q: [B, S, H, K], dtype of the point; raw, not normalised when `qk_l2norm`.
        k: [B, S, H, K], likewise.
        v: [B, S, H, V], dtype of the point.
        g: [B, S, H, K]: raw gate logits in the point's dtype (`bounded`, `softplus`), or the log
            decay in fp32 (`log`); formulas as in `LinearInputs`.
        beta_logits: [B, S, H], dtype of the point; beta = sigmoid of it.
        a_log: fp32 [H], or None for gate `log`.
        dt_bias: fp32 [H, K], or None for gate `log`.
        gate: Which of the forms of `g`.
        lower_bound: Smallest log decay of the `bounded` gate (< 0); unused otherwise.
        scale: Factor on q, `K ** -0.5`.
        qk_l2norm: Whether q and k are divided by `sqrt(sum(x ** 2) + 1e-6)` over K first.
        state: [B, H, V, K] in the state's dtype, **updated in place** by a call; also the output
            `state`. `PreparedCall.reset` restores it.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    beta_logits: torch.Tensor
    a_log: torch.Tensor | None
    dt_bias: torch.Tensor | None
    gate: Gate
    lower_bound: float
    scale: float
    qk_l2norm: bool
    state: torch.Tensor
