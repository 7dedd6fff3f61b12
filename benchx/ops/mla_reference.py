"""The fp64 reference of MLA inputs, on a sample of heads when all would take too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchx.core.call import Reference
from benchx.ops.checked_heads import checked_heads, with_heads
from benchx.ops.mla_inputs import DecodeInputs, Expanded, PrefillInputs, causal_pairs

if TYPE_CHECKING:
    import torch

BUDGET_FLOPS = {"cuda": 2e13, "cpu": 1e10}
"""fp64 work that takes about a second there; heads are independent, so a sample of them will do."""


def _share(flops: float, device_type: str) -> float:
    """Of the heads, what can be checked in about a second; `flops` is the work of all of them."""
    return BUDGET_FLOPS[device_type] / max(flops, 1.0)


def prefill_reference(inputs: PrefillInputs, turn: int = 0) -> Reference:
    """Output `o` [T, heads, V]; `turn` as in `checked_heads`."""
    from benchx_kernels import reference_mla

    q, given = inputs.q, inputs.operands
    pairs = causal_pairs(inputs.q_lengths, inputs.kv_lengths)
    share = _share(4.0 * pairs * q.shape[1] * q.shape[2], q.device.type)
    heads = checked_heads(q.shape[1], share, turn)
    q = _select(q, heads, 1)
    if isinstance(given, Expanded):
        out = reference_mla.varlen_prefill(
            q,
            _select(given.k, heads, 1),
            _select(given.v, heads, 1),
            q_lengths=inputs.q_lengths,
            kv_lengths=inputs.kv_lengths,
            scale=inputs.scale,
        )
    else:
        out = reference_mla.varlen_projected_prefill(
            q,
            given.c_kv,
            given.k_pe,
            w_uk=_select(given.weights.w_uk, heads, 0),
            w_uv=_select(given.weights.w_uv, heads, 0),
            q_lengths=inputs.q_lengths,
            kv_lengths=inputs.kv_lengths,
            scale=inputs.scale,
        )
    return _reference(out, heads, inputs.q.shape[1], head_dim=1)


def decode_reference(inputs: DecodeInputs, turn: int = 0) -> Reference:
    """Output `o` [B, S, heads, C], with projections [B, S, heads, V]; `turn` as above."""
    from benchx_kernels import reference_mla

    total, device_type = inputs.q.shape[2], inputs.q.device.type
    keys, weights = float(sum(inputs.lengths)), inputs.weights
    if weights is None:
        per_key = 4.0 * inputs.tokens * inputs.kv_lora
        heads = checked_heads(total, _share(keys * total * per_key, device_type), turn)
        out = reference_mla.paged_latent_decode(
            _select(inputs.q, heads, 2),
            inputs.kv_cache,
            inputs.block_table,
            lengths=inputs.lengths,
            kv_lora=inputs.kv_lora,
            scale=inputs.scale,
        )
    else:  # expanding the cache outweighs the attention on it
        per_key = 2.0 * inputs.kv_lora * (weights.w_uk.shape[1] + weights.w_uv.shape[1])
        heads = checked_heads(total, _share(keys * total * per_key, device_type), turn)
        out = reference_mla.paged_projected_decode(
            _select(inputs.q, heads, 2),
            inputs.kv_cache,
            inputs.block_table,
            lengths=inputs.lengths,
            w_uk=_select(weights.w_uk, heads, 0),
            w_uv=_select(weights.w_uv, heads, 0),
            scale=inputs.scale,
        )
    return _reference(out, heads, total, head_dim=2)


def _select(tensor: torch.Tensor, heads: Sequence[int] | None, dim: int) -> torch.Tensor:
    if heads is None:
        return tensor
    return tensor.index_select(dim, tensor.new_tensor(heads).long())


def _reference(
    out: torch.Tensor, heads: tuple[int, ...] | None, total: int, *, head_dim: int
) -> Reference:
    return Reference(
        outputs={"o": out},
        method=with_heads("fp64 softmax attention", heads, total),
        heads=heads,
        head_dims={"o": head_dim},
    )
