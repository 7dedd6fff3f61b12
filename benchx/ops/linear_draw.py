"""Seeded inputs of the linear-attention family, distributed as a freshly initialised model's.

Equal seeds give equal values on one type of device (torch's generators differ between types).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from benchx.core.axes import Params, parse_lengths
from benchx.ops.linear_inputs import DecodeInputs, Gate, LinearInputs


@dataclass(frozen=True, kw_only=True)
class GateInputs:
    """The gate's part of the inputs; fields as in `LinearInputs`."""

    gate: Gate
    g: Tensor | None
    a_log: Tensor | None
    dt_bias: Tensor | None


@dataclass(frozen=True)
class Draw:
    """Random tensors of one point from one generator.

    Attributes:
        generator: Seeded; its device is where the tensors are made.
        params: Axis values of the point.
    """

    generator: torch.Generator
    params: Params

    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """N(0, 1) in `dtype`."""
        device = self.generator.device
        return torch.randn(*shape, dtype=dtype, device=device, generator=self.generator)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """U(low, high) in fp32."""
        device = self.generator.device
        unit = torch.rand(*shape, dtype=torch.float32, device=device, generator=self.generator)
        return unit * (high - low) + low

    def size(self, axis: str) -> int:
        """An integer axis."""
        return int(self.params[axis])

    def dtype(self, axis: str) -> torch.dtype:
        """A dtype axis."""
        return cast(torch.dtype, getattr(torch, str(self.params[axis])))

    def gate(self, *tokens: int, per_channel: bool) -> GateInputs:
        """Gate inputs for tokens in dimensions `tokens`.

        a_log = log U(1, 16) a head. `bounded` (Kimi K3): logits N(0, 1), dt_bias 0. `softplus`
        (Kimi Linear) and `log`: logits N(0, 1), dt_bias the inverse softplus of a step size
        log-uniform in [0.001, 0.1], so that a token decays the state by little; `log` holds the
        result of the softplus form.

        The fresh bounded gate forgets: a token decays a channel by exp(-2.5) in the mean, a chunk
        by all. What a kernel carries over chunks is invisible with it, hence the second inputs
        of `LinearPrefill`.
        """
        gate = cast(Gate, self.params.get("gate", "none"))
        if gate == "none":
            return GateInputs(gate=gate, g=None, a_log=None, dt_bias=None)
        heads = self.size("heads")
        channels = (heads, self.size("head_dim")) if per_channel else (heads,)
        a_log = self.uniform(1, 16, heads).log()
        step = self.uniform(math.log(0.001), math.log(0.1), *channels).exp()
        logits = self.normal(*tokens, *channels, dtype=self.dtype("dtype"))
        if gate == "bounded":
            return GateInputs(gate=gate, g=logits, a_log=a_log, dt_bias=torch.zeros_like(step))
        dt_bias = step.expm1().log()
        if gate == "softplus":
            return GateInputs(gate=gate, g=logits, a_log=a_log, dt_bias=dt_bias)
        rate = a_log.exp().view(heads, *[1] * (len(channels) - 1))
        decay = torch.nn.functional.softplus(logits.float() + dt_bias) * -rate
        return GateInputs(gate=gate, g=decay, a_log=None, dt_bias=None)

    def keys(self, *tokens: int, l2norm: bool) -> Tensor:
        """One of q and k: raw N(0, 1) where the kernel normalises, else normalised and rounded."""
        shape = (*tokens, self.size("heads"), self.size("head_dim"))
        raw = self.normal(*shape, dtype=self.dtype("dtype"))
        if l2norm:
            return raw
        return torch.nn.functional.normalize(raw.float(), dim=-1).to(raw.dtype)

    def values(self, *tokens: int) -> Tensor:
        """Values v: N(0, 1) of [tokens, H, V] in the point's dtype."""
        return self.normal(
            *tokens, self.size("heads"), self.size("value_dim"), dtype=self.dtype("dtype")
        )

    def state(self, sequences: int) -> Tensor:
        """N(0, 1), the size at which the delta rule stores values of that size: [N, H, V, K]."""
        shape = (sequences, self.size("heads"), self.size("value_dim"), self.size("head_dim"))
        return self.normal(*shape, dtype=self.dtype("state_dtype"))


def draw_prefill(
    params: Params, *, gate_per_channel: bool, delta: bool, seed: int, device: torch.device
) -> LinearInputs:
    """Inputs of a prefill; q, k, v, beta logits and the initial state are N(0, 1)."""
    draw = Draw(torch.Generator(device).manual_seed(seed), params)
    lengths = parse_lengths(str(params["seqlens"]))
    tokens, l2norm = sum(lengths), bool(params["qk_l2norm"])
    ends = torch.tensor((0, *lengths), dtype=torch.int64).cumsum(0)
    gate = draw.gate(tokens, per_channel=gate_per_channel)
    return LinearInputs(
        q=draw.keys(tokens, l2norm=l2norm),
        k=draw.keys(tokens, l2norm=l2norm),
        v=draw.values(tokens),
        g=gate.g,
        beta_logits=_beta_logits(draw, tokens) if delta else None,
        a_log=gate.a_log,
        dt_bias=gate.dt_bias,
        gate=gate.gate,
        lower_bound=float(params.get("lower_bound", -5.0)),
        scale=draw.size("head_dim") ** -0.5,
        qk_l2norm=l2norm,
        cu_seqlens=ends.to(device),
        lengths=lengths,
        initial_state=draw.state(len(lengths)) if params["initial_state"] else None,
        state_dtype=draw.dtype("state_dtype"),
    )


def draw_decode(params: Params, *, seed: int, device: torch.device) -> DecodeInputs:
    """Inputs of a KDA decode step; q, k, v, beta logits and the state are N(0, 1)."""
    draw = Draw(torch.Generator(device).manual_seed(seed), params)
    batch, tokens = draw.size("batch"), draw.size("tokens")
    gate = draw.gate(batch, tokens, per_channel=True)
    if gate.g is None:
        raise ValueError("kda_decode has a gate on every channel; the point names none")
    return DecodeInputs(
        q=draw.keys(batch, tokens, l2norm=True),
        k=draw.keys(batch, tokens, l2norm=True),
        v=draw.values(batch, tokens),
        g=gate.g,
        beta_logits=_beta_logits(draw, batch, tokens),
        a_log=gate.a_log,
        dt_bias=gate.dt_bias,
        gate=gate.gate,
        lower_bound=float(params["lower_bound"]),
        scale=draw.size("head_dim") ** -0.5,
        qk_l2norm=True,
        state=draw.state(batch),
    )


def _beta_logits(draw: Draw, *tokens: int) -> Tensor:
    return draw.normal(*tokens, draw.size("heads"), dtype=draw.dtype("dtype"))
