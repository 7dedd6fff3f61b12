"""KDA decode: a few new tokens per sequence against a recurrent state that is updated in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchx.core.axes import AxisSpec, Params
from benchx.core.call import OutputSpec, Reference
from benchx.core.record import Work
from benchx.ops.backends_torch_linear import TorchDecode
from benchx.ops.base import register
from benchx.ops.linear_family import (
    ITEM_BYTES,
    gate_bytes_per_token,
    point_axes,
    point_problem,
)
from benchx.ops.linear_inputs import DecodeInputs

if TYPE_CHECKING:
    import torch

__all__ = ["OPERATOR", "DecodeInputs", "KdaDecode"]


def _axes() -> Mapping[str, AxisSpec]:
    batch = AxisSpec(type="int", doc="sequences B", minimum=1)
    tokens = AxisSpec(
        type="int", doc="new tokens a sequence; several verify a draft", default=1, minimum=1
    )
    return point_axes(("bounded", "softplus", "log"), {"batch": batch, "tokens": tokens})


@dataclass(frozen=True, kw_only=True)
class KdaDecode:
    """One decode step of Kimi Delta Attention; an `Operator[DecodeInputs]`."""

    name: str = "kda_decode"
    title: str = "KDA decode"
    max_rms_ratio: float = 0.006
    axes: Mapping[str, AxisSpec] = field(default_factory=_axes)

    def problem(self, params: Params) -> str | None:
        """Why this combination makes no sense, or None."""
        return point_problem(params)

    def make_inputs(self, params: Params, *, seed: int, device: torch.device) -> DecodeInputs:
        """Seeded inputs as a model makes them; see `linear_draw`."""
        from benchx.ops.linear_draw import draw_decode

        return draw_decode(params, seed=seed, device=device)

    def output_specs(self, inputs: DecodeInputs) -> Mapping[str, OutputSpec]:
        """`o` [B, tokens, H, V] in the dtype of v; `state` [B, H, V, K] in its own."""
        return {
            "o": OutputSpec(tuple(inputs.v.shape), inputs.v.dtype),
            "state": OutputSpec(tuple(inputs.state.shape), inputs.state.dtype),
        }

    def reference(self, inputs: DecodeInputs) -> Reference:
        """Token recurrence in fp64 from the same rounded inputs; the state is left alone."""
        from benchx.ops.linear_truth import decode_truth

        return decode_truth(inputs)

    def reference_in_turn(self, inputs: DecodeInputs, turn: int) -> Reference:
        """The same of other heads, where it covers some of them; see `JudgedInTurns`."""
        from benchx.ops.linear_truth import decode_truth

        return decode_truth(inputs, turn)

    def work(self, params: Params) -> Work:
        """FLOPs, minimum bytes and state bytes of one step.

        FLOPs 7KV a token and head: decay KV, k^T S 2KV, rank-one update 2KV, q^T S 2KV.
        Minimum bytes: the state read and written once, and q, k, v, o, gate and beta once.
        """
        batch, heads = int(params["batch"]), int(params["heads"])
        key, value = int(params["head_dim"]), int(params["value_dim"])
        tokens = batch * int(params["tokens"])
        item = ITEM_BYTES[str(params["dtype"])]
        per_token = item * (2 * key + 2 * value + 1)
        per_token += gate_bytes_per_token(params, gate_per_channel=True)
        state = batch * heads * key * value * ITEM_BYTES[str(params["state_dtype"])]
        return Work(
            flops=7.0 * tokens * heads * key * value,
            min_bytes=2 * state + tokens * heads * per_token,
            tokens=tokens,
            kv_cache_bytes=0,
            kv_state_bytes=state,
            leaves_kv=False,
        )


OPERATOR = KdaDecode()

register(
    OPERATOR,
    TorchDecode(name="recurrent", operator=OPERATOR.name, by_token=True),
    TorchDecode(name="chunked", operator=OPERATOR.name, by_token=False),
)
