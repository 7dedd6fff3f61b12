"""What a stack asks of an attention backend, and an answer in torch for any device and dtype.

The stack does projections, convolution, norms and caches; a backend gets operands and returns the
heads' outputs. So the same stack measures any kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from . import reference_linear
from .model_shapes import KdaShape, MlaShape
from .reference_mla import causal_attention

CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class KdaCall:
    """One KDA layer's recurrence over S new tokens of B sequences.

    Attributes:
        layer: Index of the layer in the stack.
        q: [B, S, H, K], not normalised.
        k: [B, S, H, K].
        v: [B, S, H, V].
        g: Gate logits [B, S, H, K].
        beta: Logits [B, S, H].
        a_log: fp32 [H].
        dt_bias: fp32 [H, K].
        state: [B, H, V, K]; must hold the state after the last token when the call is done.
        shape: Of the layer.
    """

    layer: int
    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor
    a_log: Tensor
    dt_bias: Tensor
    state: Tensor
    shape: KdaShape


@dataclass(frozen=True, kw_only=True)
class MlaCall:
    """One MLA layer's attention; of S query tokens the last one sees all L rows.

    Attributes:
        layer: Index of the layer in the stack.
        q: Prefill: [B, S, H, N + R]. Decode: absorbed, [B, S, H, C + R].
        k: Prefill: expanded, [B, L, H, N + R]; decode: None.
        v: Prefill: [B, L, H, V]; decode: None.
        rows: [B, capacity, C + R], the layer's cache.
        tokens: L.
        shape: Of the layer.
    """

    layer: int
    q: Tensor
    k: Tensor | None
    v: Tensor | None
    rows: Tensor
    tokens: int
    shape: MlaShape


class Attention(Protocol):
    """A backend of a stack's attention."""

    def kda_prefill(self, call: KdaCall) -> Tensor:
        """[B, S, H, V]; the state is updated."""

    def kda_decode(self, call: KdaCall) -> Tensor:
        """The same for few tokens."""

    def mla_prefill(self, call: MlaCall) -> Tensor:
        """[B, S, H, V]."""

    def mla_decode(self, call: MlaCall) -> Tensor:
        """[B, S, H, C]."""


class TorchAttention:
    """In torch operations; in fp64 the truth that others are judged by."""

    def kda_prefill(self, call: KdaCall) -> Tensor:
        """See `Attention`: the chunked form."""
        return self._kda(call, CHUNK)

    def kda_decode(self, call: KdaCall) -> Tensor:
        """See `Attention`: the token recurrence."""
        return self._kda(call, 1)

    def mla_prefill(self, call: MlaCall) -> Tensor:
        """See `Attention`: two products and a softmax."""
        assert call.k is not None
        assert call.v is not None
        parts = zip(call.q, call.k, call.v, strict=True)
        return torch.stack([_softmax(q, k, v, call.shape) for q, k, v in parts])

    def mla_decode(self, call: MlaCall) -> Tensor:
        """See `Attention`: on the latent."""
        rows = call.rows[:, : call.tokens]
        parts = zip(call.q, rows, rows[..., : call.shape.kv_lora], strict=True)
        return torch.stack([_softmax(q, k, v, call.shape) for q, k, v in parts])

    def _kda(self, call: KdaCall, block: int) -> Tensor:
        sequences, tokens = call.q.shape[:2]
        dtype = torch.promote_types(call.q.dtype, torch.float32)
        terms = reference_linear.activate(
            call.q.flatten(0, 1), call.k.flatten(0, 1), call.v.flatten(0, 1),
            call.g.flatten(0, 1), call.beta.flatten(0, 1),
            gate=call.shape.gate, a_log=call.a_log, dt_bias=call.dt_bias,
            lower_bound=call.shape.lower_bound, scale=call.shape.head_dim**-0.5,
            qk_l2norm=True, dtype=dtype,
        )  # fmt: skip
        order = reference_linear.block_order((tokens,) * sequences, block, call.q.device)
        form = reference_linear.recurrent if block == 1 else reference_linear.chunked
        result = form(terms, order, call.state)
        call.state.copy_(result.final_state)
        return result.o.to(call.q.dtype).view(call.v.shape)


def _softmax(q: Tensor, k: Tensor, v: Tensor, shape: MlaShape) -> Tensor:
    """Causal attention in fp32 or better, rounded once."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    return causal_attention(q, k, v, scale=shape.qk_dim**-0.5, dtype=dtype).to(q.dtype)
