"""What multi-head latent attention (MLA) computes, in fp64 torch: the truth of its kernels.

Letters in shapes: T new tokens of all sequences, Tk tokens with the cached ones, H heads, S query
tokens per sequence, C the latent width (`kv_lora`), R the rope width (may be 0), N the nope width,
V the value width. Everything is causal and aligned to the end: query i of S in a sequence of L
tokens sees the first L - S + i + 1 of them. A query that sees nothing yields 0.

Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1: k = [W_UK c, k_pe], v = W_UV c, and softmax
attention with scale (N + R) ** -0.5; absorbing W_UK into q and W_UV into the output changes the
order of the products, not the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

BLOCK_BYTES = 1 << 28
"""Largest score matrix held at a time; the references walk through the queries in blocks."""


def causal_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    dtype: torch.dtype = torch.float64,
    block_bytes: int = BLOCK_BYTES,
) -> torch.Tensor:
    """Softmax attention of one sequence.

    Args:
        q: [S, H, D].
        k: [L, H, D], or [L, D] when all heads share it.
        v: [L, H, V], or [L, V] likewise.
        scale: Factor on the products.
        dtype: What it computes in and returns.
        block_bytes: Bound on the scores held at a time.

    Returns:
        [S, H, V] in `dtype`; 0 where a query sees no key.
    """
    queries, heads, _ = q.shape
    keys = k.shape[0]
    k, v = k.to(dtype), v.to(dtype)
    k_axes, v_axes = ("khd", "khv") if k.dim() == 3 else ("kd", "kv")
    out = torch.zeros(queries, heads, v.shape[-1], dtype=dtype, device=q.device)
    step = max(1, block_bytes // max(1, keys * heads * dtype.itemsize))
    first = max(0, queries - keys)
    for start in range(first, queries, step):
        stop = min(start + step, queries)
        seen = keys - queries + stop
        scores = torch.einsum(f"qhd,{k_axes}->hqk", q[start:stop].to(dtype), k[:seen]) * scale
        position = torch.arange(seen, device=q.device)
        last = torch.arange(seen - (stop - start), seen, device=q.device)
        weights = scores.masked_fill(position > last[:, None], -torch.inf).softmax(-1)
        out[start:stop] = torch.einsum(f"hqk,{v_axes}->qhv", weights, v[:seen])
    return out


def expand(
    c_kv: torch.Tensor, k_pe: torch.Tensor, w_uk: torch.Tensor, w_uv: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of every head from the latent: k [L, H, N + R] and v [L, H, V], fp64.

    Args:
        c_kv: [L, C].
        k_pe: [L, R], shared by the heads.
        w_uk: [H, N, C].
        w_uv: [H, V, C].
    """
    latent = c_kv.double()
    k_nope = torch.einsum("lc,hnc->lhn", latent, w_uk.double())
    shared = k_pe.double()[:, None].expand(-1, k_nope.shape[1], -1)
    return torch.cat([k_nope, shared], -1), torch.einsum("lc,hvc->lhv", latent, w_uv.double())


def varlen_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    q_lengths: Sequence[int],
    kv_lengths: Sequence[int],
    scale: float,
) -> torch.Tensor:
    """Packed causal prefill behind cached prefixes.

    Args:
        q: [T, H, N + R], the new tokens.
        k: [Tk, H, N + R], of each sequence the cached tokens and then the new ones.
        v: [Tk, H, V], likewise.
        q_lengths: New tokens per sequence.
        kv_lengths: Cached and new tokens per sequence.
        scale: Factor on the products.

    Returns:
        [T, H, V] fp64.
    """
    parts = zip(
        q.split_with_sizes(list(q_lengths)),
        k.split_with_sizes(list(kv_lengths)),
        v.split_with_sizes(list(kv_lengths)),
        strict=True,
    )
    return torch.cat([causal_attention(a, b, c, scale=scale) for a, b, c in parts])


def varlen_projected_prefill(
    q: torch.Tensor,
    c_kv: torch.Tensor,
    k_pe: torch.Tensor,
    *,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    q_lengths: Sequence[int],
    kv_lengths: Sequence[int],
    scale: float,
) -> torch.Tensor:
    """`varlen_prefill` from the latent c_kv [Tk, C] and k_pe [Tk, R]; weights as in `expand`."""
    outputs = []
    latents = zip(
        c_kv.split_with_sizes(list(kv_lengths)),
        k_pe.split_with_sizes(list(kv_lengths)),
        strict=True,
    )
    for queries, (latent, rope) in zip(q.split_with_sizes(list(q_lengths)), latents, strict=True):
        k, v = expand(latent, rope, w_uk, w_uv)
        outputs.append(causal_attention(queries, k, v, scale=scale))
    return torch.cat(outputs)


def cached_rows(
    kv_cache: torch.Tensor, block_table: torch.Tensor, lengths: Sequence[int]
) -> list[torch.Tensor]:
    """The rows of each sequence in order, [length, C + R]; no other slot or page is read.

    Args:
        kv_cache: [pages, page_size, C + R].
        block_table: int32 [B, max_pages]; of row b the first ceil(length / page_size) count.
        lengths: Cached tokens per sequence.
    """
    page_size = kv_cache.shape[1]
    rows = []
    for table, length in zip(block_table, lengths, strict=True):
        pages = table[: -(-length // page_size)].long()
        rows.append(kv_cache[pages].flatten(0, 1)[:length])
    return rows


def paged_latent_decode(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    block_table: torch.Tensor,
    *,
    lengths: Sequence[int],
    kv_lora: int,
    scale: float,
) -> torch.Tensor:
    """Decode on the latent cache, W_UK already absorbed into q and W_UV not yet applied.

    Args:
        q: [B, S, H, C + R].
        kv_cache: [pages, page_size, C + R]; the first C of a row are also its value.
        block_table: As in `cached_rows`.
        lengths: Cached tokens per sequence, the S new ones included.
        kv_lora: C.
        scale: Factor on the products: (N + R) ** -0.5, of the width before absorption.

    Returns:
        [B, S, H, C] fp64.
    """
    outputs = [
        causal_attention(queries, rows, rows[:, :kv_lora], scale=scale)
        for queries, rows in zip(q, cached_rows(kv_cache, block_table, lengths), strict=True)
    ]
    return torch.stack(outputs)


def paged_projected_decode(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    block_table: torch.Tensor,
    *,
    lengths: Sequence[int],
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Decode by expanding the cache: the definition, which no absorbed kernel shares.

    Args:
        q: [B, S, H, N + R].
        kv_cache: As in `paged_latent_decode`.
        block_table: As in `cached_rows`.
        lengths: Cached tokens per sequence.
        w_uk: [H, N, C].
        w_uv: [H, V, C].
        scale: Factor on the products.

    Returns:
        [B, S, H, V] fp64.
    """
    kv_lora = w_uk.shape[2]
    outputs = []
    for queries, rows in zip(q, cached_rows(kv_cache, block_table, lengths), strict=True):
        k, v = expand(rows[:, :kv_lora], rows[:, kv_lora:], w_uk, w_uv)
        outputs.append(causal_attention(queries, k, v, scale=scale))
    return torch.stack(outputs)
