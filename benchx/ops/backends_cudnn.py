"""cuDNN frontend (`cudnn`): KDA's prefill by whichever of its engines it plans for the GPU.

On Hopper that is one CUDA kernel compiled at the first call (`kda_hopper_cuda`). It cuts a long
sequence where the decay has made the state negligible, so **its time depends on the gates**: with
hardly any decay a piece must start from further back. It reads the gate logits in fp32 and makes
that copy in every call; so would a user whose projections are bf16.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.ops.base import Unavailable, register_backend
from benchx.ops.linear_inputs import LinearInputs
from benchx.ops.packages import Package, unsupported

if TYPE_CHECKING:
    from benchx.core.call import Tensors

PACKAGE = Package(
    module="cudnn",
    distribution="nvidia-cudnn-frontend",
    tested="1.32.0",
    minimum="1.32.0",
    archs=("sm_90", "sm_100", "sm_103"),
    hashed_files="cudnn/linear_attention/hopper/cuda_kernels/*.cu",
)


class CudnnKda:
    """`cudnn.linear_attention.kimi_delta_attention` with cuDNN's own choice of engine."""

    name = "cudnn"
    operator = "kda_prefill"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Unsupported: the softplus gate, widths other than 128, other dtypes.

        Without an initial state the final one is always fp32.
        """
        widths = (params["head_dim"], params["value_dim"])
        state, given = params["state_dtype"], bool(params["initial_state"])
        gate, bound = params["gate"], float(params["lower_bound"])
        return unsupported(
            (gate in ("bounded", "log"), f"cuDNN has no {gate!r} gate, only 'bounded' and 'log'"),
            (gate != "bounded" or -5 <= bound < 0, "cuDNN's gate is meant for [-5, 0)"),
            (widths == (128, 128), "cuDNN's Hopper engines take head_dim = value_dim = 128 only"),
            (params["dtype"] == "bfloat16", "cuDNN's Hopper engines take bfloat16 inputs only"),
            (state in ("float32", "bfloat16"), "cuDNN keeps states in float32 or bfloat16 only"),
            (
                given or state == "float32",
                "cuDNN returns a float32 state when there is no initial state",
            ),
        ) or PACKAGE.absent(device)

    def prepare(self, inputs: LinearInputs) -> PreparedCall:
        """Takes packed inputs as they are; `cu_seqlens` becomes int32, which its kernels read.

        The graph object is built and compiled in the first call and found again by shape and
        options; later calls wait for nothing, so they can be captured.
        """
        import torch
        from cudnn.linear_attention import kimi_delta_attention

        arguments = _arguments(inputs) | {"cu_seqlens": inputs.cu_seqlens.to(torch.int32)}

        def run() -> Tensors:
            with torch.no_grad():
                o, final_state = kimi_delta_attention(**arguments)
            return {"o": o, "final_state": final_state}

        return PreparedCall(run=run)

    def provenance(self) -> Mapping[str, Any]:
        """Package, hash of its CUDA sources, and the engines it planned in this process."""
        return PACKAGE.provenance() | {"dispatched": _engines()}


def _arguments(inputs: LinearInputs) -> dict[str, Any]:
    """Packed inputs and V-first states as they are; `safe_gate` names the bounded gate."""
    bounded = inputs.gate == "bounded"
    return {
        "q": inputs.q,
        "k": inputs.k,
        "v": inputs.v,
        "g": inputs.g,
        "beta": inputs.beta_logits,
        "scale": inputs.scale,
        "initial_state": inputs.initial_state,
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": inputs.qk_l2norm,
        "use_beta_sigmoid_in_kernel": True,
        "safe_gate": bounded,
        "gate_lower_bound": inputs.lower_bound if bounded else None,
        "a_log": inputs.a_log,
        "dt_bias": inputs.dt_bias,
    }


def _engines() -> str | None:
    """Engines of all KDA graphs planned so far; equal options on one GPU get the same one."""
    loaded = sys.modules.get("cudnn.linear_attention.ops.kda")
    engines = [graph.selected_engine for graph, _ in getattr(loaded, "fprop_cache", {}).values()]
    names = {engine.name for engine in engines if engine is not None}
    return ", ".join(sorted(names)) or None


register_backend(CudnnKda())
