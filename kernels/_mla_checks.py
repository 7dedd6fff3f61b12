"""Argument checks of the MLA kernels: a clear error before any launch."""

from __future__ import annotations

from typing import NamedTuple

import torch

from benchx_kernels._checks import check_tensor, require
from benchx_kernels._forms import Described
from benchx_kernels._mla_configs import has_e4m3

HALF_TYPES = (torch.bfloat16, torch.float16)
LATENT_WIDTHS = (64, 128, 256, 512)
ROPE_WIDTHS = (0, 16, 32, 64)
NOPE_WIDTHS = (64, 128)
VALUE_WIDTHS = (64, 128)
_MOST_SEQUENCES = 65535  # the third dimension of a grid


def check_decode(
    q: Described, kv_cache: Described, block_table: Described, seqlens: Described, kv_lora: int
) -> None:
    """Everything `mla_decode` needs; raises ValueError. Reads nothing back from the device."""
    require(q.dim() == 4, f"q has {q.dim()} dimensions; expected [B, S, H, C + R]")
    require(kv_cache.dim() == 3, f"kv_cache has {kv_cache.dim()} dimensions; expected 3")
    require(block_table.dim() == 2, f"block_table has {block_table.dim()} dimensions; expected 2")
    batch, tokens, heads, width = q.shape
    rope = width - kv_lora
    require(kv_lora in LATENT_WIDTHS, f"kv_lora is {kv_lora}; this kernel has {LATENT_WIDTHS}")
    require(rope in ROPE_WIDTHS, f"the rope width is {rope}; this kernel has {ROPE_WIDTHS}")
    require(batch <= _MOST_SEQUENCES, f"{batch} sequences; a launch takes {_MOST_SEQUENCES}")
    check_tensor("q", q, (batch, tokens, heads, width), q, HALF_TYPES)
    pages, page_size, _ = kv_cache.shape
    cache_types = (q.dtype, torch.float8_e4m3fn) if has_e4m3(q.device) else (q.dtype,)
    check_tensor("kv_cache", kv_cache, (pages, page_size, width), q, cache_types)
    table_width = block_table.shape[1]
    check_tensor("block_table", block_table, (batch, table_width), q, (torch.int32,))
    check_tensor("seqlens", seqlens, (batch,), q, (torch.int32,))
    require(page_size > 0, "kv_cache has pages of 0 slots")
    held = table_width * page_size
    require(held < 2**31, f"a row of block_table names {held} slots; expected fewer than 2^31")


class Packed(NamedTuple):
    """A batch by its form: cu_seqlens, tokens of all sequences, how many sequences."""

    cu_seqlens: Described
    tokens: int
    sequences: int


def check_prefill(q: Described, k: Described, v: Described, queries: Packed, keys: Packed) -> None:
    """Everything `mla_prefill` needs; raises ValueError."""
    for name, value in (("q", q), ("k", k), ("v", v)):
        require(value.dim() == 3, f"{name} has {value.dim()} dimensions; expected 3")
    tokens, heads, width = q.shape
    value_dim = v.shape[2]
    require(
        split_width(width) is not None,
        f"q is {width} wide; this kernel has {NOPE_WIDTHS} and a rope part of {ROPE_WIDTHS}",
    )
    require(value_dim in VALUE_WIDTHS, f"v is {value_dim} wide; this kernel has {VALUE_WIDTHS}")
    require(queries.tokens == tokens, f"the batch holds {queries.tokens} queries, q {tokens}")
    check_tensor("q", q, (tokens, heads, width), q, HALF_TYPES)
    check_tensor("k", k, (keys.tokens, heads, width), q, (q.dtype,))
    check_tensor("v", v, (keys.tokens, heads, value_dim), q, (q.dtype,))
    for name, batch in (("queries", queries), ("keys", keys)):
        bounds = (batch.sequences + 1,)
        check_tensor(f"cu_seqlens of {name}", batch.cu_seqlens, bounds, q, (torch.int64,))
    counts = (queries.sequences, keys.sequences)
    require(counts[0] == counts[1], f"{counts[0]} sequences of queries, {counts[1]} of keys")


def split_width(width: int) -> tuple[int, int] | None:
    """The power-of-two parts (nope, rope) that a width of q and k is multiplied in, or None."""
    for nope in NOPE_WIDTHS:
        if width - nope in ROPE_WIDTHS:
            return nope, width - nope
    return None
