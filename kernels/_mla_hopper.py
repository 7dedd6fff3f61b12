"""Launches of the Hopper kernels: the descriptors that the tensor copy engine needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from benchx_kernels.device import mla_decode_hopper, mla_prefill_hopper

TILE = 64
QUERIES = 128
# Three warpgroups share 65536 registers: 168 each at the start, then 240, 240 and 24.
_LAUNCH = {"num_warps": 4, "maxnreg": 168}
_GLUON_TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@dataclass(frozen=True)
class Maps:
    """Descriptors of the tiles of one tensor: its main part and its rope part.

    Without a rope part the second is never read.
    """

    main: TensorDescriptor
    rope: TensorDescriptor


def cache_maps(kv_cache: torch.Tensor, latent: int) -> Maps:
    """The maps of kv_cache [pages, page_size, C + R] as [slots, C + R]: halves of C."""
    return _maps(
        kv_cache.view(-1, kv_cache.shape[2]), TILE, latent // 2, kv_cache.shape[2] - latent
    )


def key_maps(k: torch.Tensor, nope: int) -> Maps:
    """The maps of k [Tk, H, N + R] as [Tk, H * (N + R)]."""
    return _maps(k.view(k.shape[0], -1), QUERIES, nope, k.shape[2] - nope)


def value_map(v: torch.Tensor) -> TensorDescriptor:
    """The map of v [Tk, H, V] as [Tk, H * V]."""
    return _map(v.view(v.shape[0], -1), [QUERIES, v.shape[2]])


def _maps(rows: torch.Tensor, tile: int, main: int, rope: int) -> Maps:
    first = _map(rows, [tile, main])
    return Maps(first, _map(rows, [tile, rope]) if rope else first)


def _map(rows: torch.Tensor, block: list[int]) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(block, _GLUON_TYPES[rows.dtype])
    return TensorDescriptor.from_tensor(rows, block, layout)


def decode(
    grid: tuple[int, int, int],
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    block_table: torch.Tensor,
    seqlens: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor | None,
    sizes: tuple[float, int, int, int, int],
    shape: dict[str, Any],
) -> None:
    """`mla_decode_hopper.attend`; arguments as of `mla_decode.attend` on the device."""
    maps = cache_maps(kv_cache, shape["LATENT"])
    mla_decode_hopper.attend[grid](
        q, maps.main, maps.rope, block_table, seqlens, o, lse, *sizes,
        **shape, SPLIT=lse is not None, **_LAUNCH,
    )  # fmt: skip


def prefill(
    programs: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    bounds: tuple[torch.Tensor, torch.Tensor],
    sizes: tuple[float, int, int, int, int],
    shape: dict[str, Any],
) -> None:
    """`mla_prefill_hopper.attend`; arguments as of `mla_prefill.attend` on the device."""
    maps = key_maps(k, shape["NOPE"])
    mla_prefill_hopper.attend[(programs,)](
        q, maps.main, maps.rope, value_map(v), o, *bounds, *sizes, **shape, **_LAUNCH
    )
