"""MLA prefill in Triton: causal attention on expanded keys and values, packed sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

from benchx_kernels._arguments import check_current, check_kind, number
from benchx_kernels._checks import require
from benchx_kernels._forms import PLANS, Form, form_of
from benchx_kernels._launch import Launcher
from benchx_kernels._mla_checks import Packed, check_prefill, split_width
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
    check_kind("queries", queries, Batch)
    check_kind("keys", keys, Batch)
    scale = number("scale", scale)
    if config is not None:
        check_kind("config", config, MlaPrefillConfig)
    longest = keys.longest
    forms = (form_of(q), form_of(k), form_of(v))
    plan = _plan(*forms, _packed(queries), _packed(keys), longest=longest, config=config)
    check_current(q.device)
    o = q.new_empty(*q.shape[:2], v.shape[2])
    if o.numel() == 0:
        return o
    read = (q, *plan.views(k, v))
    bounds = (queries.cu_seqlens, keys.cu_seqlens)
    plan.attend((plan.programs, 1, 1), *read, o, *bounds, scale * _LOG2_E, *plan.sizes)
    return o


def _packed(batch: Batch) -> Packed:
    return Packed(form_of(batch.cu_seqlens), batch.tokens, len(batch.lengths))


@dataclass(frozen=True)
class _Plan:
    """What prefills of one shape have in common.

    Attributes:
        programs: In all.
        sizes: Sequences, slots for blocks of queries, heads, heads side by side.
        views: k and v as the kernel takes them: themselves, or descriptors of their tiles.
        attend: The kernel.
    """

    programs: int
    sizes: tuple[int, int, int, int]
    views: Callable[[torch.Tensor, torch.Tensor], tuple[object, ...]]
    attend: Launcher


@lru_cache(PLANS)
def _plan(
    q: Form,
    k: Form,
    v: Form,
    queries: Packed,
    keys: Packed,
    *,
    longest: int,
    config: MlaPrefillConfig | None,
) -> _Plan:
    check_prefill(q, k, v, queries, keys)
    heads, parts = q.shape[1], split_width(q.shape[2])
    assert parts is not None
    hopper = _no_hopper(k, v)
    config = config or prefill_config(longest, hopper=hopper is None)
    if config.kernel == "hopper":
        require(hopper is None, f"no Hopper kernel here: {hopper}")
    together = heads_together(config, heads)
    slots = queries.tokens // config.block_m + queries.sequences
    shape = {"NOPE": parts[0], "ROPE": parts[1], "VALUE": v.shape[2]}
    return _Plan(
        programs=-(heads // -together) * together * slots,
        sizes=(queries.sequences, slots, heads, together),
        views=_views(config, parts[0]),
        attend=_launcher(config, shape),
    )


def _launcher(config: MlaPrefillConfig, shape: dict[str, int]) -> Launcher:
    if config.kernel == "hopper":
        from benchx_kernels import _mla_hopper

        return _mla_hopper.prefill_launcher(shape)
    cut = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "STAGES": config.stages}
    return Launcher(portable.attend, shape | cut, {"num_warps": config.warps})


def _views(
    config: MlaPrefillConfig, nope: int
) -> Callable[[torch.Tensor, torch.Tensor], tuple[object, ...]]:
    if config.kernel == "portable":
        return lambda k, v: (k, v)
    from benchx_kernels import _mla_hopper

    return partial(_mla_hopper.prefill_views, nope)


def _no_hopper(k: Form, v: Form) -> str | None:
    """Why the Hopper kernel can't take these tensors, or None."""
    reasons = (
        (0 < k.shape[0] < 2**31, f"there are {k.shape[0]} keys"),
        (k.aligned, "k is not aligned to 16 bytes"),
        (v.aligned, "v is not aligned to 16 bytes"),
    )
    failed = (reason for holds, reason in reasons if not holds)
    return no_hopper(k.device) or next(failed, None)
