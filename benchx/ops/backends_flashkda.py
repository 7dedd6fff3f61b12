"""FlashKDA (`flash_kda`, wheel `tokenspeed-flashkda`): two CUDA kernels for KDA's prefill.

It computes one thing: bounded gate, sigmoid of beta and L2 norm inside, K = V = 128, bf16. The
limits below are those that its C++ entry checks or silently assumes (it has no switch for the
norm, and materialises exp(-sum of log decays) over 16 tokens, which a bound below -5 overflows).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params, parse_lengths
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.ops.base import Unavailable, register_backend
from benchx.ops.linear_inputs import LinearInputs
from benchx.ops.packages import Package, unsupported

if TYPE_CHECKING:
    from benchx.core.call import Tensors

PACKAGE = Package(
    module="flash_kda",
    distribution="tokenspeed-flashkda",
    tested="0.0.1.post20260729",
    archs=("sm_90", "sm_100", "sm_103", "sm_120"),
    wheels="CPython 3.12 on Linux x86-64",
    hashed_files="flash_kda_C.*",
)


class FlashKda:
    """`flash_kda.fwd`, which writes the output and the final state into given tensors."""

    name = "flashkda"
    operator = "kda_prefill"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Unsupported: other gates, widths, dtypes or bounds, no L2 norm, no token at all."""
        widths = (params["head_dim"], params["value_dim"])
        bounded = params["gate"] == "bounded"
        return unsupported(
            (bounded, f"FlashKDA computes the bounded gate only, not {params['gate']!r}"),
            (
                bounded and -5 <= float(params["lower_bound"]) < 0,
                "FlashKDA's 16-token chunks overflow with a lower bound outside [-5, 0)",
            ),
            (widths == (128, 128), "FlashKDA is compiled for head_dim = value_dim = 128"),
            (params["dtype"] == "bfloat16", "FlashKDA takes bfloat16 inputs only"),
            (
                params["state_dtype"] in ("float32", "bfloat16"),
                "FlashKDA keeps states in float32 or bfloat16 only",
            ),
            (bool(params["qk_l2norm"]), "FlashKDA always normalises q and k"),
            (
                sum(parse_lengths(str(params["seqlens"]))) > 0,
                "FlashKDA aborts the process on a batch without tokens",
            ),
        ) or PACKAGE.absent(device)

    def prepare(self, inputs: LinearInputs) -> PreparedCall:
        """Allocates the outputs once, as the interface asks; the workspace is its own each call.

        A single sequence goes without `cu_seqlens`, which spares it the search for tiles. Nothing
        waits for the device, so the call can be captured.
        """
        import torch
        from flash_kda import fwd

        heads, width = inputs.q.shape[1:]
        states = (len(inputs.lengths), heads, inputs.v.shape[-1], width)
        out = torch.empty_like(inputs.v)
        final_state = torch.empty(states, dtype=inputs.state_dtype, device=inputs.device)
        arguments = _arguments(inputs) | {"out": out.unsqueeze(0), "final_state": final_state}

        def run() -> Tensors:
            fwd(**arguments)
            return {"o": out, "final_state": final_state}

        return PreparedCall(run=run)

    def provenance(self) -> Mapping[str, Any]:
        """Package; the compiled extension's hash. It dispatches to nothing else."""
        return PACKAGE.provenance() | {"dispatched": "flash_kda.fwd"}


def _arguments(inputs: LinearInputs) -> dict[str, Any]:
    """Inputs with a batch dimension of 1; beta stays logits, the state V first in its dtype."""
    assert inputs.g is not None
    assert inputs.beta_logits is not None
    return {
        "q": inputs.q.unsqueeze(0),
        "k": inputs.k.unsqueeze(0),
        "v": inputs.v.unsqueeze(0),
        "g": inputs.g.unsqueeze(0),
        "beta": inputs.beta_logits.unsqueeze(0),
        "scale": inputs.scale,
        "A_log": inputs.a_log,
        "dt_bias": inputs.dt_bias,
        "lower_bound": inputs.lower_bound,
        "initial_state": inputs.initial_state,
        "cu_seqlens": inputs.cu_seqlens if len(inputs.lengths) > 1 else None,
    }


register_backend(FlashKda())
