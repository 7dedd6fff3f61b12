"""MLA decode in Triton: one or several query tokens for each sequence on a paged latent cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

from benchx_kernels._arguments import check_current, check_kind, check_whole, number
from benchx_kernels._checks import require
from benchx_kernels._forms import PLANS, Form, form_of
from benchx_kernels._launch import Launcher
from benchx_kernels._mla_checks import check_decode
from benchx_kernels._mla_configs import (
    MlaDecodeConfig,
    Splitting,
    decode_config,
    no_hopper,
    splitting,
)
from benchx_kernels.device import mla_decode as portable

_LOG2_E = 1.4426950408889634


def mla_decode(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    block_table: torch.Tensor,
    seqlens: torch.Tensor,
    *,
    kv_lora: int,
    scale: float,
    longest: int | None = None,
    config: MlaDecodeConfig | None = None,
) -> torch.Tensor:
    """Outputs [B, S, H, C] in q's dtype, W_UK absorbed into q and W_UV not yet applied.

    Launches one kernel, or two when the sequences are split; reads nothing back and allocates
    only the output and the partial results: safe in a CUDA graph.

    Args:
        q: Queries [B, S, H, C + R], bf16 or fp16; the S tokens are the last of each sequence.
        kv_cache: [pages, page_size, C + R] in q's dtype or fp8 e4m3; the first C columns of a
            row are also its value. Slots without a token may hold anything.
        block_table: int32 [B, max_pages]: the pages of each sequence in order; entries behind
            the last one may be anything.
        seqlens: int32 [B]: tokens of each sequence, the S new ones included; 0 yields 0.
        kv_lora: C.
        scale: Factor on the products: (N + R) ** -0.5, of the width before absorption.
        longest: Tokens of the longest sequence, if the host knows it; without it sequences are
            cut as if they filled the table.
        config: How the work is cut; None picks what was measured best.

    Raises:
        ValueError: Before any launch, for shapes, dtypes, devices or strides that do not fit.
    """
    # Asked here: in a decode step a call of each check would take longer than its answer.
    if type(scale) is not float:
        scale = number("scale", scale)
    if type(kv_lora) is not int:
        check_whole("kv_lora", kv_lora)
    if longest is not None and (type(longest) is not int or longest < 0):
        check_whole("longest", longest)
    if config is not None:
        check_kind("config", config, MlaDecodeConfig)
    plan = _plan(
        form_of(q), form_of(kv_cache), form_of(block_table), form_of(seqlens), kv_lora, config
    )
    check_current(q.device)
    splits = plan.splits(longest)
    batch, tokens, heads, _ = q.shape
    o = q.new_empty(batch, tokens, heads, kv_lora)
    if o.numel() == 0:
        return o
    grid, sizes = (plan.blocks, splits, batch), (scale * _LOG2_E, *plan.sizes, splits)
    read = (q, *plan.views(kv_cache), block_table, seqlens)
    if splits == 1:
        plan.whole(grid, *read, o, None, *sizes)
        return o
    parts = q.new_empty(batch, tokens * heads, splits, kv_lora, dtype=torch.float32)
    lse = q.new_empty(batch, tokens * heads, splits, dtype=torch.float32)
    plan.split(grid, *read, parts, lse, *sizes)
    _merge(parts, lse, o)
    return o


@dataclass(frozen=True)
class _Plan:
    """What steps of one shape have in common.

    Attributes:
        config: How the work is cut.
        splitting: How the number of splits follows from the longest sequence.
        held: Tokens that a row of the block table can name.
        blocks: Programs of a sequence and split.
        sizes: Rows of a sequence, heads, width of the block table.
        views: The cache as the kernel takes it: itself, or descriptors of its tiles.
        whole, split: The kernel for one split a sequence, and for several.
    """

    config: MlaDecodeConfig
    splitting: Splitting
    held: int
    blocks: int
    sizes: tuple[int, int, int]
    views: Callable[[torch.Tensor], tuple[object, ...]]
    whole: Launcher
    split: Launcher

    def splits(self, longest: int | None) -> int:
        """Pieces of each sequence; `longest` as in `mla_decode`, refused beyond the table."""
        if longest is None:
            longest = self.held
        elif longest > self.held:
            raise ValueError(f"longest is {longest}; a row of block_table holds {self.held} tokens")
        return self.config.splits or self.splitting.splits(longest)


@lru_cache(PLANS)
def _plan(
    q: Form,
    kv_cache: Form,
    block_table: Form,
    seqlens: Form,
    kv_lora: int,
    config: MlaDecodeConfig | None,
) -> _Plan:
    check_decode(q, kv_cache, block_table, seqlens, kv_lora)
    batch, tokens, heads, width = q.shape
    rows, page_size, table_width = tokens * heads, kv_cache.shape[1], block_table.shape[1]
    hopper = _no_hopper(q, kv_cache, kv_lora)
    config = config or decode_config(q.device, rows, hopper=hopper is None)
    if config.kernel != "portable":
        require(hopper is None, f"no Hopper kernel here: {hopper}")
    shape = {"TOKENS": tokens, "LATENT": kv_lora, "ROPE": width - kv_lora, "PAGE": page_size}
    whole, split = (_launcher(config, {**shape, "SPLIT": several}) for several in (False, True))
    return _Plan(
        config=config,
        splitting=splitting(q.device, config, batch, rows, kv_lora),
        held=table_width * page_size,
        blocks=-(rows // -config.block_m),
        sizes=(rows, heads, table_width),
        views=_views(config, kv_lora),
        whole=whole,
        split=split,
    )


def _launcher(config: MlaDecodeConfig, constants: dict[str, int]) -> Launcher:
    if config.kernel != "portable":
        from benchx_kernels import _mla_hopper

        return _mla_hopper.decode_launcher(constants)
    cut = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "STAGES": config.stages}
    return Launcher(portable.attend, constants | cut, {"num_warps": config.warps})


def _views(config: MlaDecodeConfig, kv_lora: int) -> Callable[[torch.Tensor], tuple[object, ...]]:
    if config.kernel == "portable":
        return lambda kv_cache: (kv_cache,)
    from benchx_kernels import _mla_hopper

    return partial(_mla_hopper.decode_views, kv_lora)


def _no_hopper(q: Form, kv_cache: Form, kv_lora: int) -> str | None:
    """Why the Hopper kernel can't take these tensors, or None."""
    pages, page_size, _ = kv_cache.shape
    reasons = (
        (kv_cache.dtype == q.dtype, f"the cache is {kv_cache.dtype}, q {q.dtype}"),
        (kv_lora >= 128, f"a latent of {kv_lora} has no halves of 64"),
        (page_size % 64 == 0, f"a tile of 64 tokens crosses pages of {page_size}"),
        (0 < pages * page_size < 2**31, f"the cache has {pages * page_size} slots"),
        (kv_cache.aligned, "the cache is not aligned to 16 bytes"),
    )
    failed = (reason for holds, reason in reasons if not holds)
    return no_hopper(q.device) or next(failed, None)


def _merge(parts: torch.Tensor, lse: torch.Tensor, o: torch.Tensor) -> None:
    batch, rows, splits, latent = parts.shape
    padded = 1 << (splits - 1).bit_length()  # the next power of two
    block_c = min(latent, 8192 // padded)  # 64 values a thread
    merge = _merger(latent, block_c, padded, o.dtype, o.device)
    merge((batch * rows, latent // block_c, 1), parts, lse, o, splits)


@lru_cache(PLANS)
def _merger(
    latent: int, block_c: int, padded: int, dtype: torch.dtype, device: torch.device
) -> Launcher:
    """One for each form of what `merge` reads and writes."""
    constants = {"LATENT": latent, "BLOCK_C": block_c, "SPLITS": padded}
    return Launcher(portable.merge, constants, {"num_warps": 4})
