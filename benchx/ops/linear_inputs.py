"""Inputs of the linear-attention family (KDA and its ancestors), packed without padding.

Letters in shapes: T tokens of all sequences together, N sequences, H heads, K key width
(`head_dim`), V value width (`value_dim`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    import torch

Gate = Literal["bounded", "softplus", "log", "none"]
"""How `g` becomes the log decay; see `LinearInputs.g`."""


class TensorFields:
    """Clone, size and device of a dataclass by its tensor fields (those that are set)."""

    def _tensors(self) -> dict[str, torch.Tensor]:
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if hasattr(value, "data_ptr")}

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return next(iter(self._tensors().values())).device

    def clone(self) -> Self:
        """A copy whose tensors share no memory with this one."""
        copies = {name: tensor.clone() for name, tensor in self._tensors().items()}
        return replace(self, **copies)  # type: ignore[type-var]

    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self._tensors().values())


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearInputs(TensorFields):
    """One prefill of the family; sequence n is rows `cu_seqlens[n]:cu_seqlens[n + 1]`.

    Attributes:
        q: [T, H, K], dtype of the point; raw, not normalised when `qk_l2norm`.
        k: [T, H, K], likewise.
        v: [T, H, V], dtype of the point.
        g: By `gate`. `bounded`: raw gate logits [T, H, K] in the point's dtype, the log decay is
            `lower_bound * sigmoid(exp(a_log) * (g + dt_bias))`. `softplus`: raw logits likewise,
            `-exp(a_log) * softplus(g + dt_bias)`. `log`: the log decay itself in fp32, <= 0,
            [T, H, K] for KDA and [T, H] for operators with one gate a head. `none`: None.
        beta_logits: [T, H] in the point's dtype; beta = sigmoid of it, part of the computation.
            None where the operator has no delta rule.
        a_log: fp32 [H] for `bounded` and `softplus`, else None.
        dt_bias: fp32 [H, K] for `bounded` and `softplus`, else None.
        gate: Which of the forms of `g`.
        lower_bound: Smallest log decay of the `bounded` gate (< 0); unused otherwise.
        scale: Factor on q, `K ** -0.5`.
        qk_l2norm: Whether q and k are divided by `sqrt(sum(x ** 2) + 1e-6)` over K first.
        cu_seqlens: int64 [N + 1] on the device, from 0 to T.
        lengths: The N sequence lengths; any of them may be 0.
        initial_state: [N, H, V, K] in `state_dtype` (V first), or None for zeros.
        state_dtype: dtype of the initial and the final state.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor | None
    beta_logits: torch.Tensor | None
    a_log: torch.Tensor | None
    dt_bias: torch.Tensor | None
    gate: Gate
    lower_bound: float
    scale: float
    qk_l2norm: bool
    cu_seqlens: torch.Tensor
    lengths: tuple[int, ...]
    initial_state: torch.Tensor | None
    state_dtype: torch.dtype


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
