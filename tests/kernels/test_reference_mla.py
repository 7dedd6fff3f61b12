"""The fp64 truth of MLA, against attention written out one query at a time."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchx_kernels import reference_mla


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_by_one(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Plain sums of exponentials: no softmax, no blocks, no mask."""
    queries, heads, _ = q.shape
    out = torch.zeros(queries, heads, v.shape[-1], dtype=torch.float64)
    for i in range(queries):
        for h in range(heads):
            seen = k.shape[0] - queries + i + 1
            weights = [math.exp(float(q[i, h] @ k[j, h]) * scale) for j in range(max(0, seen))]
            for j, weight in enumerate(weights):
                out[i, h] += weight / sum(weights) * v[j, h]
    return out


def paged(rows: list[Tensor], page_size: int) -> tuple[Tensor, Tensor]:
    """A cache with the pages in reverse order and NaN everywhere else."""
    counts = [-(-len(row) // page_size) for row in rows]
    total = sum(counts)
    cache = torch.full((total + 1, page_size, rows[0].shape[1]), torch.nan, dtype=torch.float64)
    table = torch.full((len(rows), max(1, *counts)), 2147480000, dtype=torch.int32)
    page = total
    for b, row in enumerate(rows):
        for i in range(counts[b]):
            part = row[i * page_size : (i + 1) * page_size]
            cache[page, : len(part)] = part
            table[b, i] = page
            page -= 1
    return cache, table


@settings(max_examples=40, deadline=None)
@given(
    queries=st.integers(0, 5),
    keys=st.integers(0, 6),
    block_bytes=st.sampled_from([1, 200, 1 << 20]),
)
def test_blocked_attention_equals_the_sum_of_exponentials(
    queries: int, keys: int, block_bytes: int
) -> None:
    q, k, v = normal(queries, 2, 6, seed=1), normal(keys, 2, 6, seed=2), normal(keys, 2, 3, seed=3)
    out = reference_mla.causal_attention(q, k, v, scale=0.4, block_bytes=block_bytes)
    torch.testing.assert_close(out, one_by_one(q, k, v, 0.4), rtol=1e-12, atol=1e-12)


def test_keys_shared_by_the_heads_equal_the_same_keys_repeated() -> None:
    q, k = normal(3, 4, 6), normal(7, 6, seed=1)
    shared = reference_mla.causal_attention(q, k, k[:, :5], scale=0.5)
    repeated = k[:, None].expand(-1, 4, -1)
    each = reference_mla.causal_attention(q, repeated, repeated[..., :5], scale=0.5)
    torch.testing.assert_close(shared, each, rtol=1e-12, atol=1e-12)


def test_a_query_that_sees_no_key_yields_zero() -> None:
    out = reference_mla.causal_attention(normal(4, 1, 2), normal(1, 1, 2), normal(1, 1, 2), scale=1)
    assert out[:3].abs().max() == 0
    assert out[3].abs().max() > 0


def test_prefill_keeps_packed_sequences_apart() -> None:
    q_lengths, kv_lengths = (3, 0, 1, 4), (5, 2, 1, 4)
    q, k, v = normal(8, 2, 6), normal(12, 2, 6, seed=1), normal(12, 2, 3, seed=2)
    out = reference_mla.varlen_prefill(
        q, k, v, q_lengths=q_lengths, kv_lengths=kv_lengths, scale=0.3
    )
    alone = torch.cat(
        [one_by_one(q[:3], k[:5], v[:5], 0.3), one_by_one(q[3:4], k[7:8], v[7:8], 0.3),
         one_by_one(q[4:], k[8:], v[8:], 0.3)]
    )  # fmt: skip
    torch.testing.assert_close(out, alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rope_dim", [0, 4])
def test_absorbing_the_projections_changes_nothing(rope_dim: int) -> None:
    lora, nope, value, heads = 8, 6, 5, 3
    rows = [normal(length, lora + rope_dim, seed=length) for length in (7, 0, 2)]
    cache, table = paged(rows, page_size=4)
    q = normal(3, 2, heads, nope + rope_dim, seed=9)
    w_uk, w_uv = normal(heads, nope, lora, seed=10), normal(heads, value, lora, seed=11)
    projected = reference_mla.paged_projected_decode(
        q, cache, table, lengths=(7, 0, 2), w_uk=w_uk, w_uv=w_uv, scale=0.3
    )
    absorbed = torch.cat(
        [torch.einsum("bshn,hnc->bshc", q[..., :nope], w_uk), q[..., nope:]], dim=-1
    )
    latent = reference_mla.paged_latent_decode(
        absorbed, cache, table, lengths=(7, 0, 2), kv_lora=lora, scale=0.3
    )
    folded = torch.einsum("bshc,hvc->bshv", latent, w_uv)
    torch.testing.assert_close(projected, folded, rtol=1e-12, atol=1e-12)
    assert projected[1].abs().max() == 0


def test_projected_prefill_equals_prefill_on_expanded_keys_and_values() -> None:
    c_kv, k_pe = normal(6, 8), normal(6, 4, seed=1)
    w_uk, w_uv = normal(3, 5, 8, seed=2), normal(3, 2, 8, seed=3)
    q = normal(4, 3, 9, seed=4)
    k, v = reference_mla.expand(c_kv, k_pe, w_uk, w_uv)
    assert torch.equal(k[..., 5:], k_pe[:, None].expand(-1, 3, -1))
    lengths = {"q_lengths": (1, 3), "kv_lengths": (3, 3), "scale": 0.3}
    projected = reference_mla.varlen_projected_prefill(
        q, c_kv, k_pe, w_uk=w_uk, w_uv=w_uv, **lengths
    )
    torch.testing.assert_close(projected, reference_mla.varlen_prefill(q, k, v, **lengths))


def test_slots_pages_and_table_entries_without_a_token_are_not_read() -> None:
    rows = [normal(length, 6, seed=length) for length in (5, 4)]
    cache, table = paged(rows, page_size=4)
    read = reference_mla.cached_rows(cache, table, (5, 4))
    assert torch.equal(read[0], rows[0])
    assert torch.equal(read[1], rows[1])


def test_float8_caches_are_read_as_the_values_they_hold() -> None:
    rows = [normal(3, 6).to(torch.float8_e4m3fn)]
    cache, table = paged([rows[0].double()], page_size=4)
    q = normal(1, 1, 2, 6)
    held = reference_mla.paged_latent_decode(q, cache, table, lengths=(3,), kv_lora=4, scale=1)
    narrow = reference_mla.paged_latent_decode(
        q, cache.to(torch.float8_e4m3fn), table, lengths=(3,), kv_lora=4, scale=1
    )
    assert torch.equal(held, narrow)
