"""Our own Triton kernels for the linear-attention family (`benchx_kernels`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.ops.base import Unavailable, register_backend
from benchx.ops.linear_inputs import DecodeInputs, LinearInputs
from benchx.ops.packages import unsupported
from benchx.ops.shared_memory import scan_problem

if TYPE_CHECKING:
    from torch import Tensor

    from benchx_kernels.gate import Gate

WIDTHS = (64, 128, 256)
"""Key and value widths that the kernels are written for."""

STATE_DTYPES = ("float32", "bfloat16")


def triton_absent(device: Device) -> Unavailable | None:
    """Why Triton kernels can't run on this device, or None; the interpreter counts as a device."""
    if find_spec("triton") is None:
        reason = "Triton is not installed (it has wheels for Linux only)"
        return Unavailable(outcome=Outcome.SKIPPED, reason=reason, install="pip install triton")
    if device.is_gpu or _interpreted():
        return None
    reason = f"Triton kernels need a GPU; this is {device.name}"
    return Unavailable(outcome=Outcome.SKIPPED, reason=reason)


def _interpreted() -> bool:
    import triton

    return bool(triton.knobs.runtime.interpret)


@dataclass(frozen=True, kw_only=True)
class TritonForm:
    """What the Triton backends of the family share.

    Attributes:
        operator: Name of the operator.
        name: Name of the backend.
    """

    operator: str
    name: str = "triton"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Skipped without a GPU; unsupported for widths and states that no kernel has."""
        widths, state = (params["head_dim"], params["value_dim"]), params["state_dtype"]
        return unsupported(
            (set(widths) <= set(WIDTHS), f"widths are {widths}; these kernels have {WIDTHS}"),
            (state in STATE_DTYPES, f"states are {state}; these kernels keep {STATE_DTYPES}"),
        ) or triton_absent(device)

    def provenance(self) -> Mapping[str, Any]:
        """Version of benchx and Triton, and the hash of the kernels' sources."""
        import triton

        import benchx
        import benchx_kernels

        folder = Path(benchx_kernels.__file__).parent
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
        return {
            "package": "benchx_kernels",
            "version": benchx.__version__,
            "triton": triton.__version__,
            "sha256": digest.hexdigest(),
        }


@dataclass(frozen=True, kw_only=True)
class TritonPrefill(TritonForm):
    """Chunked prefill: K1 over chunks, K2 over the state."""

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Unsupported too where a program's shared memory is too small."""
        problem = scan_problem(self.operator, params, device.arch)
        limits = TritonForm.unavailable(self, params, device)
        return limits or unsupported((problem is None, str(problem)))

    def prepare(self, inputs: LinearInputs) -> PreparedCall:
        """Bind to inputs; validating the batch (a read-back) happens here, as once per step."""
        import torch

        from benchx_kernels.batch import Batch
        from benchx_kernels.chunk_prefill import States, chunk_prefill

        batch = Batch(inputs.cu_seqlens, inputs.lengths)
        gate = gate_of(inputs)
        shape = (len(batch.lengths), *inputs.v.shape[1:], inputs.k.shape[2])

        def run() -> Mapping[str, Tensor]:
            final = torch.empty(shape, dtype=inputs.state_dtype, device=inputs.device)
            o = chunk_prefill(
                inputs.q, inputs.k, inputs.v, inputs.beta_logits,
                gate=gate, batch=batch, scale=inputs.scale, qk_l2norm=inputs.qk_l2norm,
                states=States(initial=inputs.initial_state, final=final),
            )  # fmt: skip
            return {"o": o, "final_state": final}

        return PreparedCall(run=run)


@dataclass(frozen=True, kw_only=True)
class TritonDecode(TritonForm):
    """One pass over the state, updated in place."""

    def prepare(self, inputs: DecodeInputs) -> PreparedCall:
        """Bind to inputs; keeps a copy of the state for `reset`."""
        from benchx_kernels.kda_decode import kda_decode

        gate, before = gate_of(inputs), inputs.state.clone()

        def run() -> Mapping[str, Tensor]:
            o = kda_decode(
                inputs.q, inputs.k, inputs.v, inputs.beta_logits, inputs.state,
                gate=gate, scale=inputs.scale, qk_l2norm=inputs.qk_l2norm,
            )  # fmt: skip
            return {"o": o, "state": inputs.state}

        def reset() -> None:
            inputs.state.copy_(before)

        return PreparedCall(run=run, reset=reset)


def gate_of(inputs: LinearInputs | DecodeInputs) -> Gate:
    """The gate of a point's inputs, as our kernels take it."""
    from benchx_kernels.gate import Gate

    one_a_head = inputs.g is not None and inputs.g.dim() < inputs.k.dim()
    return Gate(
        kind="scalar" if one_a_head else inputs.gate,
        g=inputs.g,
        a_log=inputs.a_log,
        dt_bias=inputs.dt_bias,
        lower_bound=inputs.lower_bound,
    )


for _operator in ("linear_attention", "delta_rule", "gated_delta_rule", "kda_prefill"):
    register_backend(TritonPrefill(operator=_operator))
register_backend(TritonDecode(operator="kda_decode"))
