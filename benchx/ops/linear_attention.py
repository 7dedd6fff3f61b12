"""Linear attention, prefill: the state sums v k^T; gate `log` adds one decay a head."""

from __future__ import annotations

from benchx.ops.backends_torch_linear import TorchPrefill
from benchx.ops.base import register
from benchx.ops.linear_family import LinearPrefill

OPERATOR = LinearPrefill(
    name="linear_attention",
    title="linear attention prefill",
    gates=(
        "none",
        "log",
    ),
    gate_per_channel=False,
    delta=False,
)

register(
    OPERATOR,
    TorchPrefill(name="recurrent", operator=OPERATOR.name, by_token=True),
    TorchPrefill(name="chunked", operator=OPERATOR.name, by_token=False),
)
