"""Torch backends of the linear-attention family, for any device; they compute in fp32."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import getfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.ops.base import Unavailable
from benchx.ops.linear_inputs import DecodeInputs, LinearInputs

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 64
"""Chunk length of the chunked form, as in Kimi Linear's and FLA's kernels."""

GRAPH_STEPS = 512
"""Above this many serial steps a CUDA graph of the call would hold thousands of launches."""


@dataclass(frozen=True, kw_only=True)
class TorchForm:
    """What the two torch backends of an operator share.

    Attributes:
        name: Name of the backend.
        operator: Name of the operator.
        by_token: Token recurrence if true, chunked form if not.
    """

    name: str
    operator: str
    by_token: bool

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Torch runs every point on every device."""
        return None

    def provenance(self) -> Mapping[str, Any]:
        """Version of torch, and the hash of the code that ran."""
        import torch

        from benchx_kernels import reference_linear_chunked, reference_linear_recurrent

        module = reference_linear_recurrent if self.by_token else reference_linear_chunked
        return {
            "package": "torch",
            "version": torch.__version__,
            "module": module.__name__,
            "sha256": hashlib.sha256(Path(getfile(module)).read_bytes()).hexdigest(),
        }


@dataclass(frozen=True, kw_only=True)
class TorchPrefill(TorchForm):
    """Prefill in torch: gates, norms and recurrence of packed inputs, outputs rounded once."""

    def prepare(self, inputs: LinearInputs) -> PreparedCall:
        """Bind to inputs; the order of tokens is worked out here, all arithmetic in `run`."""
        import torch

        from benchx.ops.linear_truth import terms_of
        from benchx_kernels import reference_linear

        form = reference_linear.recurrent if self.by_token else reference_linear.chunked
        order = reference_linear.block_order(
            inputs.lengths, 1 if self.by_token else CHUNK, inputs.device
        )

        def run() -> Mapping[str, Tensor]:
            result = form(terms_of(inputs, torch.float32), order, inputs.initial_state)
            return {
                "o": result.o.to(inputs.v.dtype),
                "final_state": result.final_state.to(inputs.state_dtype),
            }

        return PreparedCall(run=run, graph_safe=len(order.counts) <= GRAPH_STEPS)


@dataclass(frozen=True, kw_only=True)
class TorchDecode(TorchForm):
    """Decode in torch, state updated in place: by token, or its S tokens as one chunk."""

    def prepare(self, inputs: DecodeInputs) -> PreparedCall:
        """Bind to inputs; keeps a copy of the state for `reset`."""
        import torch

        from benchx.ops.linear_truth import packed_decode, terms_of
        from benchx_kernels import reference_linear

        packed, before = packed_decode(inputs), inputs.state.clone()
        tokens = inputs.v.shape[1]
        block = 1 if self.by_token else 2 ** (tokens - 1).bit_length()
        order = reference_linear.block_order(packed.lengths, block, inputs.device)
        form = (
            reference_linear.recurrent_inplace
            if self.by_token
            else reference_linear.chunked_inplace
        )

        def run() -> Mapping[str, Tensor]:
            state = inputs.state.float()  # the state itself when it is fp32
            o = form(state, terms_of(packed, torch.float32), order).to(inputs.v.dtype)
            if state is not inputs.state:
                inputs.state.copy_(state)
            return {"o": o.view(inputs.v.shape), "state": inputs.state}

        return PreparedCall(run=run, reset=lambda: _restore(inputs.state, before))


def _restore(state: Tensor, before: Tensor) -> None:
    state.copy_(before)
