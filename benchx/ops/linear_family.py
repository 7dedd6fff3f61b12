"""What the prefill operators of the linear-attention family share: axes, truth and costs.

An operator of the family differs in two words: which gates it takes, and whether it has the
delta rule. Letters in formulas: T tokens, N sequences, H heads, K = head_dim, V = value_dim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchx.core.axes import AxisSpec, Params, parse_lengths
from benchx.core.call import OutputSpec, Reference
from benchx.core.record import Work
from benchx.ops.linear_inputs import Gate, LinearInputs

if TYPE_CHECKING:
    import torch

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

FLOP_CHUNK = 64
"""Chunk length in the FLOP convention of arXiv 2510.26692, eq. 13, whatever a kernel uses."""

RECURRENCE_TOKENS = 256
"""Up to this length the fp64 truth is the token recurrence itself."""


def point_axes(gates: tuple[Gate, ...], batch_axes: Mapping[str, AxisSpec]) -> dict[str, AxisSpec]:
    """Axes of an operator: heads, then those of its batch, then widths, dtypes and gate."""
    dtypes = tuple(ITEM_BYTES)
    heads = AxisSpec(type="int", doc="heads H", minimum=1)
    axes = {
        "heads": heads,
        **batch_axes,
        "head_dim": AxisSpec(type="int", doc="key width K of a head", default=128, minimum=1),
        "value_dim": AxisSpec(type="int", doc="value width V of a head", default=128, minimum=1),
        "dtype": AxisSpec(
            type="str", doc="of q, k, v, o and gate logits", default="bfloat16", choices=dtypes
        ),
        "state_dtype": AxisSpec(
            type="str", doc="of the recurrent state", default="float32", choices=dtypes
        ),
    }
    if gates != ("none",):
        axes["gate"] = AxisSpec(type="str", doc="form of the gate", default=gates[0], choices=gates)
    if "bounded" in gates:
        axes["lower_bound"] = AxisSpec(
            type="float", doc="smallest log decay of the bounded gate", default=-5.0
        )
    return axes


def point_problem(params: Params) -> str | None:
    """What `problem` says of values that prefill and decode share."""
    if params.get("gate") == "bounded" and float(params["lower_bound"]) >= 0:
        return f"the bounded gate needs lower_bound < 0, got {params['lower_bound']}"
    return None


def gate_bytes_per_token(params: Params, *, gate_per_channel: bool) -> int:
    """Bytes of the gate input per token and head: logits in dtype, a log decay in fp32."""
    gate = params.get("gate", "none")
    if gate == "none":
        return 0
    width = int(params["head_dim"]) if gate_per_channel else 1
    return width * (4 if gate == "log" else ITEM_BYTES[str(params["dtype"])])


@dataclass(frozen=True, kw_only=True)
class LinearPrefill:
    """A prefill of the family over a packed batch; an `Operator[LinearInputs]`.

    Attributes:
        gates: Forms of the gate it takes, the default first; `("none",)` for no gate.
        gate_per_channel: Whether a gate is [H, K] per token (KDA) or [H].
        delta: Whether it has the delta rule, hence beta.
        max_rms_ratio: Default bound on rms(error) / rms(reference); 0.006 is what FlashKDA and
            FLA ask of bf16 kernels against fp64.
    """

    name: str
    title: str
    gates: tuple[Gate, ...]
    gate_per_channel: bool
    delta: bool
    max_rms_ratio: float = 0.006
    axes: Mapping[str, AxisSpec] = field(init=False)

    def __post_init__(self) -> None:
        seqlens = AxisSpec(type="lengths", doc="tokens of each sequence", minimum=0)
        axes = point_axes(self.gates, {"seqlens": seqlens}) | {
            "initial_state": AxisSpec(type="bool", doc="start from a state", default=True),
            "qk_l2norm": AxisSpec(type="bool", doc="L2-normalise q and k inside", default=True),
        }
        object.__setattr__(self, "axes", axes)

    def problem(self, params: Params) -> str | None:
        """Why this combination makes no sense, or None."""
        if sum(parse_lengths(str(params["seqlens"]))) == 0:
            return f"seqlens {params['seqlens']} holds no token"
        return point_problem(params)

    def make_inputs(self, params: Params, *, seed: int, device: torch.device) -> LinearInputs:
        """Seeded inputs as a model makes them; see `linear_draw`."""
        from benchx.ops.linear_draw import draw_prefill

        return draw_prefill(
            params,
            gate_per_channel=self.gate_per_channel,
            delta=self.delta,
            seed=seed,
            device=device,
        )

    def second_inputs(self, inputs: LinearInputs) -> LinearInputs | None:
        """The same with hardly any decay where the fresh bounded gate forgets within a chunk.

        Without them a kernel that loses its state between chunks would pass.
        """
        from benchx.ops.linear_cases import gates_near_zero

        return gates_near_zero(inputs) if inputs.gate == "bounded" else None

    def output_specs(self, inputs: LinearInputs) -> Mapping[str, OutputSpec]:
        """`o` [T, H, V] in the dtype of v; `final_state` [N, H, V, K] in the state's dtype."""
        tokens, heads, value_dim = inputs.v.shape
        state = (len(inputs.lengths), heads, value_dim, inputs.k.shape[2])
        return {
            "o": OutputSpec((tokens, heads, value_dim), inputs.v.dtype),
            "final_state": OutputSpec(state, inputs.state_dtype),
        }

    def reference(self, inputs: LinearInputs) -> Reference:
        """Truth in fp64 from the same rounded inputs; `method` says which form and heads."""
        from benchx.ops.linear_truth import prefill_truth

        return prefill_truth(inputs)

    def reference_in_turn(self, inputs: LinearInputs, turn: int) -> Reference:
        """The same of other heads, where it covers some of them; see `JudgedInTurns`."""
        from benchx.ops.linear_truth import prefill_truth

        return prefill_truth(inputs, turn)

    def work(self, params: Params) -> Work:
        """FLOPs, minimum bytes and state bytes of one prefill.

        FLOPs, with C = 64: delta rule H T (6KV + C(2K + V) + C^2), which for K = V is arXiv
        2510.26692, eq. 13; without it H T (4KV + C(K + V)): state read and update, the causal
        halves of q k^T and of its product with v. Gates and norms are not counted.
        Minimum bytes: q, k, v, o, gate and beta once, final state written, initial state read.
        """
        lengths = parse_lengths(str(params["seqlens"]))
        tokens, heads = sum(lengths), int(params["heads"])
        key, value = int(params["head_dim"]), int(params["value_dim"])
        item, chunk = ITEM_BYTES[str(params["dtype"])], FLOP_CHUNK
        if self.delta:
            flops = 6 * key * value + chunk * (2 * key + value) + chunk**2
        else:
            flops = 4 * key * value + chunk * (key + value)
        per_token = item * (2 * key + 2 * value + self.delta)
        per_token += gate_bytes_per_token(params, gate_per_channel=self.gate_per_channel)
        state = len(lengths) * heads * key * value * ITEM_BYTES[str(params["state_dtype"])]
        return Work(
            flops=float(tokens * heads * flops),
            min_bytes=tokens * heads * per_token + state * (2 if params["initial_state"] else 1),
            tokens=tokens,
            kv_cache_bytes=0,
            kv_state_bytes=state,
            leaves_kv=True,
        )
