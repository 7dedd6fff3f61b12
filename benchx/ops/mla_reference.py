"""The fp64 reference of MLA inputs, on a sample of heads when all would take too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchx.core.call import Reference
from benchx.ops.mla_inputs import DecodeInputs, Expanded, PrefillInputs, causal_pairs

if TYPE_CHECKING:
    import torch

BUDGET_FLOPS = {"cuda": 2e13, "cpu": 1e10}
"""fp64 work that takes about a second there; heads are independent, so a sample of them will do."""
FEWEST_HEADS = 3


def checked_heads(heads: int, flops: float, device_type: str) -> tuple[int, ...]:
    """The heads to check: all within the budget, else evenly spread, the first and last included.

    Args:
        heads: How many there are.
        flops: fp64 work of all of them.
        device_type: Where it is done (`cuda` or `cpu`).
    """
    affordable = max(FEWEST_HEADS, int(heads * BUDGET_FLOPS[device_type] / max(flops, 1.0)))
    if affordable >= heads:
        return tuple(range(heads))
    last = heads - 1
    return tuple(sorted({round(i * last / (affordable - 1)) for i in range(affordable)}))


def prefill_reference(inputs: PrefillInputs) -> Reference:
    """Output `o` [T, heads, V]."""
    from benchx_kernels import reference_mla

    q, given = inputs.q, inputs.operands
    pairs = causal_pairs(inputs.q_lengths, inputs.kv_lengths)
    heads = checked_heads(q.shape[1], 4.0 * pairs * q.shape[1] * q.shape[2], q.device.type)
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


def decode_reference(inputs: DecodeInputs) -> Reference:
    """Output `o` [B, S, heads, C], with projections [B, S, heads, V]."""
    from benchx_kernels import reference_mla

    total, device_type = inputs.q.shape[2], inputs.q.device.type
    keys, weights = float(sum(inputs.lengths)), inputs.weights
    if weights is None:
        per_key = 4.0 * inputs.tokens * inputs.kv_lora
        heads = checked_heads(total, keys * total * per_key, device_type)
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
        heads = checked_heads(total, keys * total * per_key, device_type)
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


def _select(tensor: torch.Tensor, heads: Sequence[int], dim: int) -> torch.Tensor:
    if len(heads) == tensor.shape[dim]:
        return tensor
    return tensor.index_select(dim, tensor.new_tensor(heads).long())


def _reference(
    out: torch.Tensor, heads: tuple[int, ...], total: int, *, head_dim: int
) -> Reference:
    if len(heads) == total:
        return Reference(
            outputs={"o": out}, method="fp64 softmax attention", head_dims={"o": head_dim}
        )
    named = "+".join(map(str, heads)) if len(heads) <= 4 else f"{len(heads)} spread evenly"
    return Reference(
        outputs={"o": out},
        method=f"fp64 softmax attention, heads {named} of {total}",
        heads=heads,
        head_dims={"o": head_dim},
    )
