"""Shapes, axes and inputs of multi-head latent attention (MLA), prefill and decode.

Letters in shapes as in `benchx_kernels.reference_mla`: T new tokens of all sequences, Tk with the
cached ones, B sequences, S query tokens per sequence, H heads, C latent width (`kv_lora`), R rope
width, N nope width, V value width.
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


ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8_e4m3": 1}
"""Bytes per element of the dtypes on the axes."""


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


def causal_pairs(q_lengths: Sequence[int], kv_lengths: Sequence[int]) -> int:
    """Pairs of a query and a key that it sees, aligned to the end: S L - S (S - 1) / 2 a sequence.

    Twice this times the widths is the FLOPs of causal attention; with L = S it is the T^2 / 2 of
    the usual convention, and a rectangle's (2 L - S) S / 2, plus the diagonal's half.
    A sequence without keys has none.
    """
    pairs = zip(q_lengths, kv_lengths, strict=True)
    return sum(s * n - s * (s - 1) // 2 for s, n in pairs if n)


def projected_flops(shape: MlaShape, q_lengths: Sequence[int], kv_lengths: Sequence[int]) -> int:
    """FLOPs from the latent to the output by the cheaper of the two known forms, per sequence.

    Expanded: W_UK and W_UV turn every cached row into keys and values, 2 L H (N + V) C, then
    2 H (N + R + V) a pair. Absorbed: they turn queries and outputs, 2 S H (N + V) C, then
    2 H (C + R + C) a pair. Few queries behind much that is cached are cheaper absorbed
    (DeepSeek-V2, arXiv 2405.04434, section 2.1.2).
    """
    weights, expanded = 2 * shape.weight_numel, 2 * shape.heads * (shape.qk_dim + shape.value_dim)
    absorbed = 2 * shape.heads * (shape.row_dim + shape.kv_lora)
    total = 0
    for queries, keys in zip(q_lengths, kv_lengths, strict=True):
        pairs = causal_pairs((queries,), (keys,))
        total += min(keys * weights + pairs * expanded, queries * weights + pairs * absorbed)
    return total


@dataclass(frozen=True)
class Projections:
    """What turns the latent into keys and values: w_uk [H, N, C] and w_uv [H, V, C]."""

    w_uk: torch.Tensor
    w_uv: torch.Tensor


@dataclass(frozen=True)
class Expanded:
    """Operands of core prefill: k [Tk, H, N + R] and v [Tk, H, V]."""

    k: torch.Tensor
    v: torch.Tensor


@dataclass(frozen=True)
class Latent:
    """Operands of prefill with projections: c_kv [Tk, C], k_pe [Tk, R] and the weights."""

    c_kv: torch.Tensor
    k_pe: torch.Tensor
    weights: Projections


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

    @property
    def operands(self) -> Expanded | Latent:
        """The keys and values in the form that the point gives them."""
        if self.k is not None and self.v is not None:
            return Expanded(self.k, self.v)
        assert self.c_kv is not None
        assert self.k_pe is not None
        assert self.w_uk is not None
        assert self.w_uv is not None
        return Latent(self.c_kv, self.k_pe, Projections(self.w_uk, self.w_uv))


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

    @property
    def tokens(self) -> int:
        """S."""
        return self.q.shape[1]

    @property
    def page_size(self) -> int:
        """Slots per page."""
        return self.kv_cache.shape[1]

    @property
    def weights(self) -> Projections | None:
        """W_UK and W_UV with projections, else None."""
        if self.w_uk is None or self.w_uv is None:
            return None
        return Projections(self.w_uk, self.w_uv)
