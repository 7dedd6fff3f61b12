"""Seeded inputs of multi-head latent attention; letters in shapes as in `mla_inputs`.

Values: latent, rope part and queries have unit variance and W_UK, W_UV keep it, so that the logits
have unit variance too, as behind the norms of a real model. A token also looks at itself: of L keys
that it sees the logit of its own is raised by log(L) / 2, which gives it about a third of the
output at any L. Among 8192 keys that are all alike one that is masked by mistake would change less
than rounding is allowed to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.ops.mla_inputs import UNUSED_PAGE, DecodeInputs, MlaShape, PrefillInputs, torch_dtype

if TYPE_CHECKING:
    import torch


_BLOCK_TOKENS = 4096
"""New tokens whose own keys are held at a time."""


@dataclass(frozen=True)
class Draw:
    """Seeded normal tensors on one device."""

    generator: torch.Generator
    dtype: torch.dtype

    @classmethod
    def seeded(cls, seed: int, device: torch.device, dtype: torch.dtype) -> Draw:
        """Equal seeds draw equal values on equal devices."""
        import torch

        return cls(torch.Generator(device=device).manual_seed(seed), dtype)

    def normal(self, *size: int, deviation: float = 1.0) -> torch.Tensor:
        """A tensor of `size` with mean 0."""
        import torch

        device = self.generator.device
        drawn = torch.randn(size, generator=self.generator, device=device, dtype=self.dtype)
        return drawn if deviation == 1.0 else drawn.mul_(deviation)

    def permutation(self, count: int) -> torch.Tensor:
        """int32 [count]: 0 to count - 1 in random order."""
        import torch

        device = self.generator.device
        return torch.randperm(count, generator=self.generator, device=device).int()


def make_prefill_inputs(
    shape: MlaShape,
    q_lengths: Sequence[int],
    kv_lengths: Sequence[int],
    *,
    seed: int,
    device: torch.device,
    logit_scale: float = 1.0,
) -> PrefillInputs:
    """Inputs of one prefill; `logit_scale` is the standard deviation of the logits."""
    draw = Draw.seeded(seed, device, torch_dtype(shape.dtype))
    keys = sum(kv_lengths)
    q = draw.normal(sum(q_lengths), shape.heads, shape.qk_dim, deviation=logit_scale)
    if shape.projections:
        operands = {
            "c_kv": draw.normal(keys, shape.kv_lora),
            "k_pe": draw.normal(keys, shape.rope_dim),
            **_projections(shape, draw),
        }
    else:
        operands = {
            "k": draw.normal(keys, shape.heads, shape.qk_dim),
            "v": draw.normal(keys, shape.heads, shape.value_dim),
        }
    place, seen = _new_tokens(q_lengths, kv_lengths, device)
    for start in range(0, len(place), _BLOCK_TOKENS):
        part = slice(start, start + _BLOCK_TOKENS)
        rows = place[part]
        if shape.projections:
            own = _expanded(operands["c_kv"][rows], operands["k_pe"][rows], operands["w_uk"])
        else:
            own = operands["k"][rows]
        _look_at(q[part], own, seen[part], shape.scale)
    return PrefillInputs(
        q=q,
        cu_seqlens_q=_offsets(q_lengths, device),
        cu_seqlens_k=_offsets(kv_lengths, device),
        q_lengths=tuple(q_lengths),
        kv_lengths=tuple(kv_lengths),
        scale=shape.scale,
        **operands,
    )


def make_decode_inputs(
    shape: MlaShape,
    lengths: Sequence[int],
    *,
    tokens: int,
    page_size: int,
    cache_dtype: str,
    seed: int,
    device: torch.device,
    logit_scale: float = 1.0,
) -> DecodeInputs:
    """Inputs of one decode step; `logit_scale` is the standard deviation of the logits."""
    import torch

    draw = Draw.seeded(seed, device, torch_dtype(shape.dtype))
    width = shape.qk_dim if shape.projections else shape.row_dim
    q = draw.normal(len(lengths), tokens, shape.heads, width, deviation=logit_scale)
    if not shape.projections:  # absorption leaves N of variance in C columns
        q[..., : shape.kv_lora] *= (shape.nope_dim / shape.kv_lora) ** 0.5
    cache, table = _paged_cache(lengths, page_size, shape.row_dim, draw)
    weights = _projections(shape, draw) if shape.projections else {}
    own, seen = _own_rows(cache, table, lengths, tokens)
    if shape.projections:
        own = _expanded(own[..., : shape.kv_lora], own[..., shape.kv_lora :], weights["w_uk"])
    else:
        own = own[..., None, :]
    _look_at(q, own, seen, shape.scale)
    return DecodeInputs(
        q=q,
        kv_cache=cache.to(torch_dtype(cache_dtype)),
        block_table=table,
        seqlens=torch.tensor(list(lengths), dtype=torch.int32, device=device),
        lengths=tuple(lengths),
        kv_lora=shape.kv_lora,
        scale=shape.scale,
        **weights,
    )


def _new_tokens(
    q_lengths: Sequence[int], kv_lengths: Sequence[int], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each new token its place among all keys, and how many keys it sees; int64 [T]."""
    import torch

    new = torch.tensor(list(q_lengths))
    ends = torch.tensor(list(kv_lengths)).cumsum(0)
    from_end = (new.cumsum(0).repeat_interleave(new) - torch.arange(int(new.sum()))).to(device)
    place = ends.repeat_interleave(new).to(device) - from_end
    held = torch.tensor(list(kv_lengths)).repeat_interleave(new).to(device)
    return place, held - from_end + 1


def _own_rows(
    cache: torch.Tensor, table: torch.Tensor, lengths: Sequence[int], tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each new token its row [B, S, C + R], and how many rows it sees [B, S].

    0 and 1 where a sequence is empty.
    """
    import torch

    ends = torch.tensor(list(lengths), device=cache.device)[:, None]
    place = (ends - tokens + torch.arange(tokens, device=cache.device)).clamp(min=0)
    page = table.gather(1, place // cache.shape[1]).long().where(ends > 0, 0)
    rows = cache[page, place % cache.shape[1]]
    return rows.where(ends[..., None] > 0, torch.zeros_like(rows)), place + 1


def _expanded(c_kv: torch.Tensor, k_pe: torch.Tensor, w_uk: torch.Tensor) -> torch.Tensor:
    """Keys [*, H, N + R] of c_kv [*, C] and k_pe [*, R] by w_uk [H, N, C]."""
    import torch

    nope = torch.einsum("...c,hnc->...hn", c_kv, w_uk)
    rope = k_pe[..., None, :].expand(*k_pe.shape[:-1], w_uk.shape[0], -1)
    return torch.cat([nope, rope], dim=-1)


def _look_at(q: torch.Tensor, own: torch.Tensor, seen: torch.Tensor, scale: float) -> None:
    """Raise the logits of q [*, H, D] with `own` [*, H or 1, D] by log(seen [*]) / 2, in place."""
    squares = own.float().square().sum(-1, keepdim=True).clamp(min=1.0)
    raised = seen.log()[..., None, None] / (2 * scale * squares)
    q += (raised * own).to(q.dtype)


def _projections(shape: MlaShape, draw: Draw) -> dict[str, torch.Tensor]:
    deviation = shape.kv_lora**-0.5
    return {
        "w_uk": draw.normal(shape.heads, shape.nope_dim, shape.kv_lora, deviation=deviation),
        "w_uv": draw.normal(shape.heads, shape.value_dim, shape.kv_lora, deviation=deviation),
    }


def _offsets(lengths: Sequence[int], device: torch.device) -> torch.Tensor:
    import torch

    counts = torch.tensor([0, *lengths], dtype=torch.int32)
    return counts.cumsum(0, dtype=torch.int32).to(device)


def _paged_cache(
    lengths: Sequence[int], page_size: int, row_dim: int, draw: Draw
) -> tuple[torch.Tensor, torch.Tensor]:
    """A cache [pages, page_size, row_dim] with one page to spare, and its block table.

    Every slot without a token is NaN: a kernel that lets one into a sum shows it.
    """
    import torch

    counts = [-(-length // page_size) for length in lengths]
    order = draw.permutation(sum(counts) + 1)
    cache = draw.normal(order.numel(), page_size, row_dim)
    table = torch.full((len(counts), max(1, *counts)), UNUSED_PAGE, dtype=torch.int32)
    table = table.to(order.device)
    cache[order[-1]] = torch.nan
    start = 0
    for row, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        pages = order[start : start + count]
        table[row, :count] = pages
        if length % page_size:
            cache[pages[-1], length % page_size :] = torch.nan
        start += count
    return cache, table
