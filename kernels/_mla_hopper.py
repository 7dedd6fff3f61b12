"""Launches of the Hopper kernels: the descriptors that the tensor copy engine needs."""

from __future__ import annotations

from functools import lru_cache

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from benchx_kernels._forms import PLANS
from benchx_kernels._launch import Launcher
from benchx_kernels.device import mla_decode_hopper, mla_prefill_hopper

TILE = 64
QUERIES = 128
# Three warpgroups share 65536 registers: 168 each at the start, then 240, 240 and 24.
_LAUNCH = {"num_warps": 4, "maxnreg": 168}
_GLUON_TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


Maps = tuple[TensorDescriptor, TensorDescriptor]
"""Descriptors of the tiles of one tensor: its main part and its rope part.

Without a rope part the second is never read.
"""


def decode_views(latent: int, kv_cache: torch.Tensor) -> Maps:
    """The maps of kv_cache [pages, page_size, C + R] as [slots, C + R]: halves of C, and R."""
    pages, page_size, width = kv_cache.shape
    return _maps(kv_cache, pages * page_size, width, TILE, (latent // 2, width - latent))


def prefill_views(
    nope: int, k: torch.Tensor, v: torch.Tensor
) -> tuple[TensorDescriptor, TensorDescriptor, TensorDescriptor]:
    """K and v as the Hopper kernel takes them."""
    return (*key_maps(k, nope), value_map(v))


def key_maps(k: torch.Tensor, nope: int) -> Maps:
    """The maps of k [Tk, H, N + R] as [Tk, H * (N + R)]."""
    keys, heads, width = k.shape
    return _maps(k, keys, heads * width, QUERIES, (nope, width - nope))


def value_map(v: torch.Tensor) -> TensorDescriptor:
    """The map of v [Tk, H, V] as [Tk, H * V]."""
    keys, heads, width = v.shape
    return _map(v, keys, heads * width, QUERIES, width)


def _maps(base: torch.Tensor, rows: int, columns: int, tile: int, parts: tuple[int, int]) -> Maps:
    first = _map(base, rows, columns, tile, parts[0])
    return first, _map(base, rows, columns, tile, parts[1]) if parts[1] else first


def _map(base: torch.Tensor, rows: int, columns: int, tile: int, width: int) -> TensorDescriptor:
    """Blocks [tile, width] of `base` seen as [rows, columns]; a copy of a checked template."""
    template = _template(rows, columns, tile, width, base.dtype)
    made = TensorDescriptor.__new__(TensorDescriptor)
    vars(made).update(vars(template), base=base)
    return made


# Describing a tensor takes 50 us, most of it to find and check the layout; a template serves all
# tensors of a form and keeps none of them alive. That `base` is aligned is part of its form.
@lru_cache(PLANS)
def _template(
    rows: int, columns: int, tile: int, width: int, dtype: torch.dtype
) -> TensorDescriptor:
    block = [tile, width]
    layout = gl.NVMMASharedLayout.get_default_for(block, _GLUON_TYPES[dtype])
    nothing = torch.empty(0, dtype=dtype)
    return TensorDescriptor(nothing, [rows, columns], [columns, 1], block, layout)


def decode_launcher(constants: dict[str, int]) -> Launcher:
    """`mla_decode_hopper.attend` with its constants."""
    return Launcher(mla_decode_hopper.attend, constants, _LAUNCH)


def prefill_launcher(constants: dict[str, int]) -> Launcher:
    """`mla_prefill_hopper.attend` with its constants."""
    return Launcher(mla_prefill_hopper.attend, constants, _LAUNCH)
