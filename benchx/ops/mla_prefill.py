"""`mla_prefill`: causal attention of a packed batch of new tokens, behind cached prefixes or none.

Core (`projections: false`): from expanded keys and values, which is what prefill kernels compute.
With projections the call starts from the latent and expands it (or absorbs the weights) itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchx.core.axes import AxisSpec, Params, parse_lengths
from benchx.core.call import OutputSpec, Reference
from benchx.core.record import Work
from benchx.ops.backends_torch_mla import PREFILL_BACKENDS
from benchx.ops.base import register
from benchx.ops.mla_draw import make_prefill_inputs
from benchx.ops.mla_inputs import (
    ITEM_BYTES,
    SHAPE_AXES,
    Expanded,
    MlaShape,
    PrefillInputs,
    causal_pairs,
    projected_flops,
)
from benchx.ops.mla_reference import prefill_reference

if TYPE_CHECKING:
    import torch

AXES: Mapping[str, AxisSpec] = {
    **SHAPE_AXES,
    "seqlens": AxisSpec(type="lengths", doc="new tokens of each sequence", minimum=0),
    "prefix": AxisSpec(type="int", doc="cached tokens before each sequence", default=0, minimum=0),
}


class MlaPrefill:
    """Definition of the operator; shapes are those of `PrefillInputs`.

    Output `o`: [T, H, V] in q's dtype.
    """

    name: str = "mla_prefill"
    title: str = "MLA prefill, causal, packed"
    axes: Mapping[str, AxisSpec] = AXES
    max_rms_ratio: float = 0.006  # bf16 weights and output; twice what correct kernels show

    def problem(self, params: Params) -> str | None:
        """Combinations that mean nothing."""
        if not any(parse_lengths(str(params["seqlens"]))):
            return f"seqlens {params['seqlens']} holds no token"
        return None

    def make_inputs(self, params: Params, *, seed: int, device: torch.device) -> PrefillInputs:
        """Seeded inputs on `device`."""
        q_lengths, kv_lengths = lengths_of(params)
        shape = MlaShape.of(params)
        return make_prefill_inputs(shape, q_lengths, kv_lengths, seed=seed, device=device)

    def output_specs(self, inputs: PrefillInputs) -> Mapping[str, OutputSpec]:
        """`o` as above."""
        given = inputs.operands
        width = given.v.shape[2] if isinstance(given, Expanded) else given.weights.w_uv.shape[1]
        return {"o": OutputSpec((*inputs.q.shape[:2], width), inputs.q.dtype)}

    def reference(self, inputs: PrefillInputs) -> Reference:
        """Softmax attention in fp64 on expanded keys and values."""
        return prefill_reference(inputs)

    def reference_in_turn(self, inputs: PrefillInputs, turn: int) -> Reference:
        """The same of other heads, where it covers some of them; see `JudgedInTurns`."""
        return prefill_reference(inputs, turn)

    def work(self, params: Params) -> Work:
        """FLOPs and bytes of one call.

        Core: 2 H pairs (N + R + V) FLOPs, masked pairs not counted; q, k, v and the output once.
        With projections the cheaper of the expanded and the absorbed form of each sequence
        (`projected_flops`), and the latent and the weights instead of k and v. What a prefill
        leaves behind is the latent row, C + R values a new token, whichever form computes it.
        """
        shape, (q_lengths, kv_lengths) = MlaShape.of(params), lengths_of(params)
        tokens, keys = sum(q_lengths), sum(kv_lengths)
        width = shape.qk_dim + shape.value_dim
        flops = 2 * shape.heads * causal_pairs(q_lengths, kv_lengths) * width
        operands = keys * shape.heads * width
        if shape.projections:
            flops = projected_flops(shape, q_lengths, kv_lengths)
            operands = keys * shape.row_dim + shape.weight_numel
        itemsize = ITEM_BYTES[shape.dtype]
        return Work(
            flops=float(flops),
            min_bytes=(tokens * shape.heads * width + operands) * itemsize,
            tokens=tokens,
            kv_cache_bytes=tokens * shape.row_dim * itemsize,
            kv_state_bytes=0,
            leaves_kv=True,
        )


def lengths_of(params: Params) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """New tokens, and cached and new tokens, of each sequence."""
    q_lengths = parse_lengths(str(params["seqlens"]))
    return q_lengths, tuple(length + int(params["prefix"]) for length in q_lengths)


register(MlaPrefill(), *PREFILL_BACKENDS)
