"""MLA prefill in Triton: causal attention on expanded keys and values, packed sequences."""

from __future__ import annotations

import torch
import triton

from benchx_kernels._checks import require
from benchx_kernels._mla_checks import check_prefill, split_width
from benchx_kernels._mla_configs import (
    MlaPrefillConfig,
    heads_together,
    no_hopper,
    prefill_config,
)
from benchx_kernels.batch import Batch
from benchx_kernels.device import mla_prefill as portable

_LOG2_E = 1.4426950408889634


def mla_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    queries: Batch,
    keys: Batch,
    scale: float,
    config: MlaPrefillConfig | None = None,
) -> torch.Tensor:
    """Outputs [T, H, V] in q's dtype; 0 where a query sees no key.

    Launches one kernel, reads nothing back and allocates only the output: safe in a CUDA graph.

    Args:
        q: Queries [T, H, N + R], the new tokens; bf16 or fp16.
        k: Keys [Tk, H, N + R], of each sequence the cached tokens and then the new ones.
        v: Values [Tk, H, V], likewise.
        queries: Where the new tokens of each sequence begin; any may have none.
        keys: Where the keys of each sequence begin.
        scale: Factor on the products: (N + R) ** -0.5.
        config: How the work is cut; None picks what was measured best.

    Raises:
        ValueError: Before the launch, for shapes, dtypes, devices or strides that do not fit.
    """
    check_prefill(q, k, v, queries, keys)
    heads, width, value_dim = q.shape[1], q.shape[2], v.shape[2]
    o = q.new_empty(*q.shape[:2], value_dim)
    if o.numel() == 0:
        return o
    parts = split_width(width)
    assert parts is not None
    hopper = _no_hopper(k, v)
    config = config or prefill_config(hopper, keys.longest)
    together = heads_together(config, heads)
    slots = queries.tokens // config.block_m + len(queries.lengths)
    programs = triton.cdiv(heads, together) * together * slots
    bounds = (queries.cu_seqlens, keys.cu_seqlens)
    sizes = (scale * _LOG2_E, len(queries.lengths), slots, heads, together)
    shape = {"NOPE": parts[0], "ROPE": parts[1], "VALUE": value_dim}
    if config.kernel == "hopper":
        from benchx_kernels import _mla_hopper

        require(hopper is None, f"no Hopper kernel here: {hopper}")
        _mla_hopper.prefill(programs, q, k, v, o, bounds, sizes, shape)
        return o
    portable.attend[(programs,)](
        q, k, v, o, *bounds, *sizes, **shape,
        BLOCK_M=config.block_m, BLOCK_N=config.block_n, STAGES=config.stages,
        num_warps=config.warps,
    )  # fmt: skip
    return o


def _no_hopper(k: torch.Tensor, v: torch.Tensor) -> str | None:
    """Why the Hopper kernel can't take these tensors, or None."""
    reasons = (
        (0 < k.shape[0] < 2**31, f"there are {k.shape[0]} keys"),
        (k.data_ptr() % 16 == 0, "k is not aligned to 16 bytes"),
        (v.data_ptr() % 16 == 0, "v is not aligned to 16 bytes"),
    )
    failed = (reason for holds, reason in reasons if not holds)
    return no_hopper(k.device) or next(failed, None)
