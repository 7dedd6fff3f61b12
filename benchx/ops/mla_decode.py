"""`mla_decode`: attention of a few new tokens on a paged latent cache.

Core (`projections: false`): q has W_UK absorbed, the output is latent and W_UV not yet applied,
which is what decode kernels compute. With projections W_UK and W_UV belong to the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchx.core.axes import AxisSpec, Params
from benchx.core.call import OutputSpec, Reference
from benchx.core.record import Work
from benchx.ops.backends_torch_mla import DECODE_BACKENDS
from benchx.ops.base import register
from benchx.ops.mla_draw import make_decode_inputs
from benchx.ops.mla_inputs import (
    ITEM_BYTES,
    SHAPE_AXES,
    DecodeInputs,
    MlaShape,
    causal_pairs,
    projected_flops,
)
from benchx.ops.mla_reference import decode_reference

if TYPE_CHECKING:
    import torch

AXES: Mapping[str, AxisSpec] = {
    **SHAPE_AXES,
    "batch": AxisSpec(type="int", doc="sequences", minimum=1),
    "context": AxisSpec(type="int", doc="cached tokens per sequence, the new ones included; "
                        "0 = nothing cached, output 0", minimum=0),
    "context_spread": AxisSpec(type="float", default=0.0, minimum=0.0,
                               doc="0.5: lengths evenly from 0.5 to 1.5 of context"),
    "tokens": AxisSpec(type="int", doc="new tokens per sequence, causal", default=1, minimum=1),
    "page_size": AxisSpec(type="int", doc="tokens per page of the cache", default=64, minimum=1),
    "cache_dtype": AxisSpec(type="str", doc="dtype of the cache; auto = dtype of q", default="auto",
                            choices=("auto", "bfloat16", "float16", "float32", "float8_e4m3")),
}  # fmt: skip


class MlaDecode:
    """Definition of the operator; shapes are those of `DecodeInputs`.

    Output `o`: [B, S, H, C] in q's dtype, with projections [B, S, H, V].
    """

    name: str = "mla_decode"
    title: str = "MLA decode on a paged latent cache"
    axes: Mapping[str, AxisSpec] = AXES
    max_rms_ratio: float = 0.006  # bf16 weights and output; twice what correct kernels show

    def problem(self, params: Params) -> str | None:
        """Combinations that mean nothing."""
        tokens, spread = int(params["tokens"]), float(params["context_spread"])
        if spread >= 1:
            return f"context_spread must be below 1, got {spread:g}"
        short = [length for length in context_lengths(params) if 0 < length < tokens]
        if short:
            return f"a context of {short[0]} can't hold the {tokens} new tokens"
        if cache_dtype_of(params) not in (params["dtype"], "float8_e4m3"):
            return (
                f"cache_dtype {params['cache_dtype']} must be auto, float8_e4m3 or the dtype of q, "
                f"{params['dtype']}"
            )
        return None

    def make_inputs(self, params: Params, *, seed: int, device: torch.device) -> DecodeInputs:
        """Seeded inputs on `device`; the cache's pages are in random order."""
        return make_decode_inputs(
            MlaShape.of(params),
            context_lengths(params),
            tokens=int(params["tokens"]),
            page_size=int(params["page_size"]),
            cache_dtype=cache_dtype_of(params),
            seed=seed,
            device=device,
        )

    def output_specs(self, inputs: DecodeInputs) -> Mapping[str, OutputSpec]:
        """`o` as above."""
        width = inputs.kv_lora if inputs.weights is None else inputs.weights.w_uv.shape[1]
        return {"o": OutputSpec((*inputs.q.shape[:3], width), inputs.q.dtype)}

    def reference(self, inputs: DecodeInputs) -> Reference:
        """Softmax attention in fp64; with projections by expanding the cache."""
        return decode_reference(inputs)

    def reference_in_turn(self, inputs: DecodeInputs, turn: int) -> Reference:
        """The same of other heads, where it covers some of them; see `JudgedInTurns`."""
        return decode_reference(inputs, turn)

    def work(self, params: Params) -> Work:
        """FLOPs and bytes of one call.

        Core: 2 H pairs (C + R + C) FLOPs; the held rows once, q and the output (DeepSeek
        FlashMLA's own count). With projections the cheaper of the absorbed and the expanded
        form of each sequence (`projected_flops`), the weights once, q and the output of N + R and
        V. Nothing new is left in the cache.
        """
        shape, lengths = MlaShape.of(params), context_lengths(params)
        queries = len(lengths) * int(params["tokens"])
        new = [int(params["tokens"])] * len(lengths)
        pairs = causal_pairs(new, lengths)
        flops = 2 * shape.heads * pairs * (shape.row_dim + shape.kv_lora)
        values = queries * shape.heads * (shape.row_dim + shape.kv_lora)
        if shape.projections:
            flops = projected_flops(shape, new, lengths)
            values = queries * shape.heads * (shape.qk_dim + shape.value_dim) + shape.weight_numel
        row_bytes = shape.row_dim * ITEM_BYTES[cache_dtype_of(params)]
        return Work(
            flops=float(flops),
            min_bytes=values * ITEM_BYTES[shape.dtype] + sum(lengths) * row_bytes,
            tokens=queries,
            kv_cache_bytes=0,
            kv_state_bytes=0,
            leaves_kv=False,
        )


def context_lengths(params: Params) -> tuple[int, ...]:
    """Cached tokens of each sequence: `context`, or spread evenly around it in rising order."""
    batch, context = int(params["batch"]), int(params["context"])
    spread = float(params["context_spread"])
    if not spread or batch == 1:
        return (context,) * batch
    steps = (2 * i / (batch - 1) - 1 for i in range(batch))  # from -1 to 1
    return tuple(round(context * (1 + spread * step)) for step in steps)


def cache_dtype_of(params: Params) -> str:
    """The cache's dtype, `auto` resolved."""
    named = str(params["cache_dtype"])
    return str(params["dtype"]) if named == "auto" else named


register(MlaDecode(), *DECODE_BACKENDS)
