"""Gated delta rule (arXiv 2412.06464), prefill: delta rule with one decay a head."""

from __future__ import annotations

from benchx.ops.backends_torch_linear import TorchPrefill
from benchx.ops.base import register
from benchx.ops.linear_family import LinearPrefill

OPERATOR = LinearPrefill(
    name="gated_delta_rule",
    title="gated delta rule prefill",
    gates=("log",),
    gate_per_channel=False,
    delta=True,
)

register(
    OPERATOR,
    TorchPrefill(name="recurrent", operator=OPERATOR.name, by_token=True),
    TorchPrefill(name="chunked", operator=OPERATOR.name, by_token=False),
)
