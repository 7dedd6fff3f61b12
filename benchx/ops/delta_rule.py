"""Delta rule (DeltaNet, arXiv 2406.06484), prefill: no gate."""

from __future__ import annotations

from benchx.ops.backends_torch_linear import TorchPrefill
from benchx.ops.base import register
from benchx.ops.linear_family import LinearPrefill

OPERATOR = LinearPrefill(
    name="delta_rule",
    title="delta rule prefill",
    gates=("none",),
    gate_per_channel=False,
    delta=True,
)

register(
    OPERATOR,
    TorchPrefill(name="recurrent", operator=OPERATOR.name, by_token=True),
    TorchPrefill(name="chunked", operator=OPERATOR.name, by_token=False),
)
