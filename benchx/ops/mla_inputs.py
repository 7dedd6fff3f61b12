"""Shapes and seeded inputs of multi-head latent attention (MLA), prefill and decode.

Letters in shapes as in `benchx_kernels.reference_mla`: T new tokens of all sequences, Tk with the
cached ones, B sequences, S query tokens per sequence, H heads, C latent width (`kv_lora`), R rope
width, N nope width, V value width.

Values: latent, rope part and queries have unit variance and W_UK, W_UV keep it, so that the logits
have unit variance too, as behind the norms of a real model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.axes import AxisSpec, Params
from benchx.ops.linear_inputs import TensorFields

if TYPE_CHECKING:
    import torch

UNUSED_PAGE = 2147480000
"""Page id in unused entries of a block table: no cache is this long, so a kernel that reads it
and does not bound it fails (FlashMLA's own tests use the same)."""

SHAPE_AXES = {
    "heads": AxisSpec(type="int", doc="query heads on this device", minimum=1),
    "nope_dim": AxisSpec(type="int", doc="width of q and k without position", default=128,
                         minimum=1),
    "rope_dim": AxisSpec(type="int", doc="width of the shared rope part, 0 = none", default=64,
                         minimum=0),
    "value_dim": AxisSpec(type="int", doc="width of v per head", default=128, minimum=1),
    "kv_lora": AxisSpec(type="int", doc="width of the latent", default=512, minimum=1),
    "dtype": AxisSpec(type="str", doc="dtype of q and the output", default="bfloat16",
                      choices=("bfloat16", "float16", "float32")),
    "projections": AxisSpec(type="bool", default=False,
                            doc="start from the latent and un-absorbed q, W_UK and W_UV included"),
}  # fmt: skip
"""Axes that prefill and decode share."""


def torch_dtype(name: str) -> torch.dtype:
    """The dtype that an axis value such as `bfloat16` or `float8_e4m3` names."""
    import torch

    return {
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "float32": torch.float32,
        "float8_e4m3": torch.float8_e4m3fn,
    }[name]


@dataclass(frozen=True, kw_only=True)
class MlaShape:
    """Widths of one MLA layer on one device (see the letters above)."""

    heads: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    kv_lora: int
    dtype: str
    projections: bool

    @classmethod
    def of(cls, params: Params) -> MlaShape:
        """The shape that a point's parameters name."""
        return cls(
            heads=int(params["heads"]),
            nope_dim=int(params["nope_dim"]),
            rope_dim=int(params["rope_dim"]),
            value_dim=int(params["value_dim"]),
            kv_lora=int(params["kv_lora"]),
            dtype=str(params["dtype"]),
            projections=bool(params["projections"]),
        )

    @property
    def qk_dim(self) -> int:
        """N + R: width of expanded q and k."""
        return self.nope_dim + self.rope_dim

    @property
    def row_dim(self) -> int:
        """C + R: values that one token leaves in the cache."""
        return self.kv_lora + self.rope_dim

    @property
    def scale(self) -> float:
        """Softmax scale, of the width before absorption."""
        return float(self.qk_dim**-0.5)

    @property
    def weight_numel(self) -> int:
        """Elements of W_UK and W_UV together."""
        return self.heads * (self.nope_dim + self.value_dim) * self.kv_lora


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefillInputs(TensorFields):
    """One packed prefill; of each sequence the cached tokens come first, then the new ones.

    Attributes:
        q: [T, H, N + R], the new tokens.
        k: [Tk, H, N + R], or None with projections.
        v: [Tk, H, V], or None with projections.
        c_kv: [Tk, C] with projections, else None.
        k_pe: [Tk, R] with projections, else None; shared by the heads.
        w_uk: [H, N, C] with projections, else None.
        w_uv: [H, V, C] with projections, else None.
        cu_seqlens_q: int32 [B + 1], from 0 to T.
        cu_seqlens_k: int32 [B + 1], from 0 to Tk.
        q_lengths: New tokens per sequence; any may be 0.
        kv_lengths: Cached and new tokens per sequence.
        scale: Softmax scale (N + R) ** -0.5.
    """

    q: torch.Tensor
    k: torch.Tensor | None = None
    v: torch.Tensor | None = None
    c_kv: torch.Tensor | None = None
    k_pe: torch.Tensor | None = None
    w_uk: torch.Tensor | None = None
    w_uv: torch.Tensor | None = None
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    q_lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]
    scale: float


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodeInputs(TensorFields):
    """One decode step on a paged latent cache that already holds the S new tokens.

    Attributes:
        q: [B, S, H, C + R] with W_UK absorbed; with projections [B, S, H, N + R] without.
        w_uk: [H, N, C] with projections, else None.
        w_uv: [H, V, C] with projections, else None.
        kv_cache: [pages, page_size, C + R]; slots that hold no token are NaN.
        block_table: int32 [B, max_pages], pages in random order; unused entries `UNUSED_PAGE`.
        seqlens: int32 [B], `lengths` on the device.
        lengths: Tokens per sequence: 0 (an empty sequence, whose output is 0) or at least S.
        kv_lora: C.
        scale: Softmax scale (N + R) ** -0.5.
    """

    q: torch.Tensor
    w_uk: torch.Tensor | None = None
    w_uv: torch.Tensor | None = None
    kv_cache: torch.Tensor
    block_table: torch.Tensor
    seqlens: torch.Tensor
    lengths: tuple[int, ...]
    kv_lora: int
    scale: float


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
    return DecodeInputs(
        q=q,
        kv_cache=cache.to(torch_dtype(cache_dtype)),
        block_table=table,
        seqlens=torch.tensor(list(lengths), dtype=torch.int32, device=device),
        lengths=tuple(lengths),
        kv_lora=shape.kv_lora,
        scale=shape.scale,
        **(_projections(shape, draw) if shape.projections else {}),
    )


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
