"""What every backend must do on any inputs: right values, and nothing else touched.

For the author of a backend: make the inputs of an operator's cases (`linear_cases`) and ask
`offences` of each; an empty list is a pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from benchx.core.call import OutputSpec, PreparedCall
from benchx.core.device import Device
from benchx.measure.correctness import judge, poison
from benchx.ops.base import Backend, Inputs, Operator

I_ = TypeVar("I_", bound=Inputs)

GUARD_ELEMENTS = 4096
"""NaN on both sides of a tensor; a multiple of every alignment that kernels ask for."""


def offences(operator: Operator[I_], backend: Backend[I_], inputs: I_, device: Device) -> list[str]:
    """What is wrong with `backend` on `inputs`, one sentence each.

    It runs twice between NaN-filled neighbours and into NaN-filled fresh memory, with a reset
    after each run. Both results must be right by the operator's own bound, and every input must
    be as it was: a state that is updated in place only after the reset.
    """
    guarded = between_nans(inputs)
    reference, before = operator.reference(inputs), tensors(inputs.clone())
    call = backend.prepare(guarded)
    found: list[str] = []
    for turn in ("first run", "second run"):
        outputs = _run_poisoned(call, operator.output_specs(guarded), device)
        reason = judge(
            outputs, operator.output_specs(guarded), reference, operator.max_rms_ratio
        ).reason
        found += [f"{turn}: {reason}"] if reason else []
        if call.reset is not None:
            call.reset()
        found += [f"{turn}: changed input {name}" for name in _changed(before, tensors(guarded))]
    return found


def tensors(inputs: Inputs) -> dict[str, Tensor]:
    """The tensor fields of a dataclass of inputs, one level deep."""
    values = ((f.name, getattr(inputs, f.name)) for f in fields(inputs))  # type: ignore[arg-type]
    return {name: value for name, value in values if isinstance(value, Tensor)}


def between_nans(inputs: I_) -> I_:
    """A copy in which each float tensor, contiguous and aligned as before, has NaN neighbours."""
    guarded = {
        name: _between_nans(tensor)
        for name, tensor in tensors(inputs).items()
        if tensor.is_floating_point()
    }
    return replace(inputs.clone(), **guarded)  # type: ignore[type-var]


def _between_nans(tensor: Tensor) -> Tensor:
    size = tensor.numel()
    block = torch.full(
        (size + 2 * GUARD_ELEMENTS,), math.nan, dtype=tensor.dtype, device=tensor.device
    )
    inner = block[GUARD_ELEMENTS : GUARD_ELEMENTS + size].view(tensor.shape)
    return inner.copy_(tensor)


def _run_poisoned(
    call: PreparedCall, specs: Mapping[str, OutputSpec], device: Device
) -> dict[str, Tensor]:
    """One run; the outputs are copied, since a reset may restore one of them."""
    poison(specs, device)
    outputs = {name: value.clone() for name, value in call.run().items()}
    if device.is_gpu:
        torch.cuda.synchronize(device.index)
    return outputs


def _changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    return [name for name, tensor in before.items() if not _same_bytes(tensor, after[name])]


def _same_bytes(a: Tensor, b: Tensor) -> bool:
    """Equal bit by bit: NaN in a padded cache equals itself, float8 has no comparison."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
