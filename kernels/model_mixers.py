"""The attention layers of a stack: KDA, MLA and grouped-query, with projections and caches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .model_attention import Attention, KdaCall, MlaCall
from .model_cache import KdaCache, RowCache
from .model_shapes import GqaShape, KdaShape, MlaShape
from .model_weights import Draw, by_head, linear, rms_norm
from .short_conv import short_conv
from .torch_mla import absorb, expand, project_values

ROPE_BASE = 10000.0
EXPAND_ROWS = 1 << 16
"""Latent rows that are expanded at a time: bounds what is needed beside the keys and values."""


@dataclass(frozen=True)
class Step:
    """Where a forward pass stands.

    Attributes:
        begin: Tokens that every sequence holds already.
        end: Tokens that it holds afterwards.
        decode: Whether few tokens meet a long context: absorbed MLA, recurrent KDA.
    """

    begin: int
    end: int
    decode: bool


def rotate(x: Tensor, first: int) -> Tensor:
    """Rotary position embedding of x [B, S, *, R] for positions from `first` on."""
    width = x.shape[-1] // 2
    if width == 0:
        return x
    angle = torch.float64 if x.dtype is torch.float64 else torch.float32
    rate = ROPE_BASE ** -(torch.arange(width, device=x.device, dtype=angle) / width)
    turn = torch.arange(first, first + x.shape[1], device=x.device, dtype=angle)[:, None] * rate
    shape = (1, x.shape[1], *(1,) * (x.dim() - 3), width)
    cos, sin = turn.cos().to(x.dtype).view(shape), turn.sin().to(x.dtype).view(shape)
    low, high, rest = x[..., :width], x[..., width : 2 * width], x[..., 2 * width :]
    return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], dim=-1)


class KdaMixer:
    """Kimi Delta Attention (arXiv 2510.26692, section 4).

    Short convolution of q, k and v, decay of low rank, recurrence, gated norm.
    """

    def __init__(self, shape: KdaShape, hidden: int, draw: Draw) -> None:
        key, _, value = shape.channels
        self.shape = shape
        self.qkv = draw.matrix(2 * key + value, hidden)
        self.taps = draw.matrix(2 * key + value, shape.conv)
        self.decay_down = draw.matrix(shape.head_dim, hidden)
        self.decay_up = draw.matrix(key, shape.head_dim)
        self.beta = draw.matrix(shape.heads, hidden)
        self.a_log = draw.uniform(1.0, 16.0, shape.heads).log()
        step = draw.uniform(0.001, 0.1, shape.heads, shape.head_dim)
        self.dt_bias = step.expm1().log() if shape.gate == "softplus" else torch.zeros_like(step)
        rank = hidden if shape.full_rank_gate else shape.value_dim
        self.gate_down = None if shape.full_rank_gate else draw.matrix(rank, hidden)
        self.gate_up = draw.matrix(value, rank)
        self.norm = draw.ones(shape.value_dim)
        self.out = draw.matrix(hidden, value)

    def __call__(
        self, x: Tensor, cache: KdaCache, step: Step, attention: Attention, layer: int
    ) -> Tensor:
        """[B, S, d] from [B, S, d]; `cache` moves on by S tokens."""
        heads = self.shape.heads
        q, k, v = (by_head(part, heads) for part in self._convolved(x, cache))
        call = KdaCall(
            layer=layer,
            q=q, k=k, v=v,
            g=by_head(linear(linear(x, self.decay_down), self.decay_up), heads),
            beta=linear(x, self.beta),
            a_log=self.a_log, dt_bias=self.dt_bias,
            state=cache.state, shape=self.shape,
        )  # fmt: skip
        o = attention.kda_decode(call) if step.decode else attention.kda_prefill(call)
        gate = linear(x if self.gate_down is None else linear(x, self.gate_down), self.gate_up)
        gated = rms_norm(o, self.norm) * by_head(gate, heads).sigmoid()
        return linear(gated.flatten(-2), self.out)

    def _convolved(self, x: Tensor, cache: KdaCache) -> list[Tensor]:
        """Columns of q, k and v; each part by itself, so that each is contiguous."""
        widths = list(self.shape.channels)
        parts = zip(
            linear(x, self.qkv).split_with_sizes(widths, dim=-1),
            self.taps.split_with_sizes(widths),
            cache.window.split_with_sizes(widths, dim=-1),
            strict=True,
        )
        return [short_conv(part, taps, window) for part, taps, window in parts]


class MlaMixer:
    """Multi-head latent attention: expanded in prefill, absorbed in decode (arXiv 2405.04434)."""

    def __init__(self, shape: MlaShape, hidden: int, draw: Draw) -> None:
        width, value = shape.heads * shape.qk_dim, shape.heads * shape.value_dim
        self.shape = shape
        self.q_down = None if shape.q_lora is None else draw.matrix(shape.q_lora, hidden)
        self.q_norm = None if shape.q_lora is None else draw.ones(shape.q_lora)
        self.q_up = draw.matrix(width, shape.q_lora or hidden)
        self.kv_down = draw.matrix(shape.row_dim, hidden)
        self.kv_norm = draw.ones(shape.kv_lora)
        self.w_uk = draw.matrix(shape.nope_dim, shape.kv_lora, copies=shape.heads)
        self.w_uv = draw.matrix(shape.value_dim, shape.kv_lora, copies=shape.heads)
        self.gate = draw.matrix(value, hidden) if shape.output_gate else None
        self.out = draw.matrix(hidden, value)

    def __call__(
        self, x: Tensor, cache: RowCache, step: Step, attention: Attention, layer: int
    ) -> Tensor:
        """[B, S, d] from [B, S, d]; rows `step.begin` to `step.end` of the cache are written."""
        q = self._queries(x, step)
        cache.rows[:, step.begin : step.end] = self._rows(x, step)
        o = (
            self._decode(q, cache, step, attention, layer)
            if step.decode
            else self._prefill(q, cache, step, attention, layer)
        ).flatten(-2)
        gated = o if self.gate is None else o * linear(x, self.gate).sigmoid()
        return linear(gated, self.out)

    def _queries(self, x: Tensor, step: Step) -> Tensor:
        narrow = x
        if self.q_down is not None and self.q_norm is not None:
            narrow = rms_norm(linear(x, self.q_down), self.q_norm)
        q = by_head(linear(narrow, self.q_up), self.shape.heads)
        if not self.shape.rope:
            return q
        nope, rope = q.split_with_sizes([self.shape.nope_dim, self.shape.rope_dim], dim=-1)
        return torch.cat([nope, rotate(rope, step.begin)], dim=-1)

    def _rows(self, x: Tensor, step: Step) -> Tensor:
        widths = [self.shape.kv_lora, self.shape.rope_dim]
        latent, rope = linear(x, self.kv_down).split_with_sizes(widths, dim=-1)
        shared = rotate(rope, step.begin) if self.shape.rope else rope
        return torch.cat([rms_norm(latent, self.kv_norm), shared], dim=-1)

    def _prefill(
        self, q: Tensor, cache: RowCache, step: Step, attention: Attention, layer: int
    ) -> Tensor:
        sequences = q.shape[0]
        k, v = self._expanded(cache.rows[:, : step.end].flatten(0, 1).to(q.dtype))
        return attention.mla_prefill(
            MlaCall(
                layer=layer,
                q=q,
                k=k.view(sequences, step.end, *k.shape[1:]),
                v=v.view(sequences, step.end, *v.shape[1:]),
                rows=cache.rows,
                tokens=step.end,
                shape=self.shape,
            )
        )

    def _expanded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [L, H, N + R] and values [L, H, V] of rows [L, C + R]."""
        w_uk, w_uv = self.w_uk.to(rows.dtype), self.w_uv.to(rows.dtype)
        latent, shared = rows.split_with_sizes([self.shape.kv_lora, self.shape.rope_dim], dim=-1)
        total = rows.shape[0]
        if total <= EXPAND_ROWS:
            return expand(latent, shared, w_uk, w_uv)
        k = rows.new_empty(total, self.shape.heads, self.shape.qk_dim)
        v = rows.new_empty(total, self.shape.heads, self.shape.value_dim)
        for start in range(0, total, EXPAND_ROWS):
            part = slice(start, start + EXPAND_ROWS)
            k[part], v[part] = expand(latent[part], shared[part], w_uk, w_uv)
        return k, v

    def _decode(
        self, q: Tensor, cache: RowCache, step: Step, attention: Attention, layer: int
    ) -> Tensor:
        absorbed: Tensor = absorb(q.flatten(0, 1), self.w_uk.to(q.dtype))
        call = MlaCall(
            layer=layer, q=absorbed.view(*q.shape[:3], -1), k=None, v=None,
            rows=cache.rows, tokens=step.end, shape=self.shape,
        )  # fmt: skip
        o = attention.mla_decode(call).flatten(0, 1)
        values: Tensor = project_values(o, self.w_uv.to(q.dtype))
        return values.view(*q.shape[:3], -1)


class GqaMixer:
    """Grouped-query attention with rotary positions, by torch's scaled_dot_product_attention."""

    def __init__(self, shape: GqaShape, hidden: int, draw: Draw) -> None:
        self.shape = shape
        self.q = draw.matrix(shape.heads * shape.head_dim, hidden)
        self.kv = draw.matrix(2 * shape.kv_heads * shape.head_dim, hidden)
        self.q_norm = draw.ones(shape.head_dim) if shape.qk_norm else None
        self.k_norm = draw.ones(shape.head_dim) if shape.qk_norm else None
        self.out = draw.matrix(hidden, shape.heads * shape.head_dim)

    def __call__(
        self, x: Tensor, cache: RowCache, step: Step, attention: Attention, layer: int
    ) -> Tensor:
        """[B, S, d] from [B, S, d]; rows `step.begin` to `step.end` of the cache are written."""
        q = by_head(linear(x, self.q), self.shape.heads)
        kv = by_head(linear(x, self.kv), 2, self.shape.kv_heads)
        k, v = kv.unbind(-3)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = rms_norm(q, self.q_norm), rms_norm(k, self.k_norm)
        q, k = rotate(q, step.begin), rotate(k, step.begin)
        cache.rows[:, step.begin : step.end] = torch.stack([k, v], dim=-3)
        keys, values = cache.rows[:, : step.end].to(q.dtype).unbind(-3)
        tokens = step.end - step.begin
        bias = None
        if tokens > 1 and step.begin > 0:
            # Only here: it brings in torch's compiler, as many modules as torch itself.
            from torch.nn.attention.bias import causal_lower_right

            bias = causal_lower_right(tokens, step.end)
        o = F.scaled_dot_product_attention(
            q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), bias,
            is_causal=step.begin == 0 and tokens > 1, enable_gqa=True,
        )  # fmt: skip
        return linear(o.transpose(1, 2).flatten(-2), self.out)
