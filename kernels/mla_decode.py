"""MLA decode in Triton: one or several query tokens for each sequence on a paged latent cache."""

from __future__ import annotations

import torch
import triton

from benchx_kernels._checks import require
from benchx_kernels._mla_checks import check_decode
from benchx_kernels._mla_configs import (
    DecodeShape,
    MlaDecodeConfig,
    decode_config,
    no_hopper,
    with_splits,
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
    check_decode(q, kv_cache, block_table, seqlens, kv_lora, longest)
    batch, tokens, heads, _ = q.shape
    o = q.new_empty(batch, tokens, heads, kv_lora)
    if o.numel() == 0:
        return o
    held = block_table.shape[1] * kv_cache.shape[1]
    shape = DecodeShape(
        batch=batch,
        rows=tokens * heads,
        latent=kv_lora,
        longest=held if longest is None else longest,
        hopper=_no_hopper(q, kv_cache, kv_lora),
    )
    config = with_splits(q.device, shape, config) if config else decode_config(q.device, shape)
    if config.kernel == "hopper":
        require(shape.hopper is None, f"no Hopper kernel here: {shape.hopper}")
    if config.splits == 1:
        _attend(q, kv_cache, block_table, seqlens, o, None, scale, config)
        return o
    partial = q.new_empty(batch, shape.rows, config.splits, kv_lora, dtype=torch.float32)
    lse = partial.new_empty(partial.shape[:3])
    _attend(q, kv_cache, block_table, seqlens, partial, lse, scale, config)
    _merge(partial, lse, o)
    return o


def _no_hopper(q: torch.Tensor, kv_cache: torch.Tensor, kv_lora: int) -> str | None:
    """Why the Hopper kernel can't take these tensors, or None."""
    pages, page_size, _ = kv_cache.shape
    reasons = (
        (kv_cache.dtype == q.dtype, f"the cache is {kv_cache.dtype}, q {q.dtype}"),
        (kv_lora >= 128, f"a latent of {kv_lora} has no halves of 64"),
        (page_size % 64 == 0, f"a tile of 64 tokens crosses pages of {page_size}"),
        (0 < pages * page_size < 2**31, f"the cache has {pages * page_size} slots"),
        (kv_cache.data_ptr() % 16 == 0, "the cache is not aligned to 16 bytes"),
    )
    failed = (reason for holds, reason in reasons if not holds)
    return no_hopper(q.device) or next(failed, None)


def _attend(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    block_table: torch.Tensor,
    seqlens: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor | None,
    scale: float,
    config: MlaDecodeConfig,
) -> None:
    batch, tokens, heads, width = q.shape
    page_size, latent = kv_cache.shape[1], o.shape[-1]
    rows = tokens * heads
    grid = (triton.cdiv(rows, config.block_m), config.splits, batch)
    sizes = (scale * _LOG2_E, rows, heads, block_table.shape[1], config.splits)
    shape = {"TOKENS": tokens, "LATENT": latent, "ROPE": width - latent, "PAGE": page_size}
    if config.kernel == "hopper":
        from benchx_kernels import _mla_hopper

        _mla_hopper.decode(grid, q, kv_cache, block_table, seqlens, o, lse, sizes, shape)
        return
    portable.attend[grid](
        q, kv_cache, block_table, seqlens, o, lse, *sizes, **shape,
        BLOCK_M=config.block_m, BLOCK_N=config.block_n, SPLIT=lse is not None,
        STAGES=config.stages, num_warps=config.warps,
    )  # fmt: skip


def _merge(partial: torch.Tensor, lse: torch.Tensor, o: torch.Tensor) -> None:
    splits, latent = partial.shape[2:]
    padded = triton.next_power_of_2(splits)
    block_c = min(latent, 8192 // padded)  # 64 values a thread
    portable.merge[(lse.shape[0] * lse.shape[1], latent // block_c)](
        partial, lse, o, splits, LATENT=latent, BLOCK_C=block_c, SPLITS=padded, num_warps=4
    )
