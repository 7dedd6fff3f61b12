"""Kimi Delta Attention (arXiv 2510.26692), prefill: delta rule with a gate on every channel."""

from __future__ import annotations

from benchx.ops.backends_torch_linear import TorchPrefill
from benchx.ops.base import register
from benchx.ops.linear_family import LinearPrefill

OPERATOR = LinearPrefill(
    name="kda_prefill",
    title="KDA prefill",
    gates=(
        "bounded",
        "softplus",
        "log",
    ),
    gate_per_channel=True,
    delta=True,
)

register(
    OPERATOR,
    TorchPrefill(name="recurrent", operator=OPERATOR.name, by_token=True),
    TorchPrefill(name="chunked", operator=OPERATOR.name, by_token=False),
)
