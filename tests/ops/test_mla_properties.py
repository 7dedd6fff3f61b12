"""What must not change the output of MLA, for every torch backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import benchx.ops.catalog  # noqa: F401
from benchx.ops.base import backends_of
from benchx.ops.mla_draw import make_decode_inputs, make_prefill_inputs
from benchx.ops.mla_inputs import UNUSED_PAGE, DecodeInputs, MlaShape, PrefillInputs

CPU = torch.device("cpu")
LENGTHS = (130, 0, 5, 64)
DECODE = ("absorbed", "sdpa", "expanded")
PREFILL = ("expanded", "sdpa", "absorbed")


def shape(rope_dim: int = 8) -> MlaShape:
    return MlaShape(
        heads=3, nope_dim=24, rope_dim=rope_dim, value_dim=16, kv_lora=32, dtype="float32",
        projections=True,
    )  # fmt: skip


def decode_inputs(tokens: int = 2, rope_dim: int = 8) -> DecodeInputs:
    return make_decode_inputs(
        shape(rope_dim), LENGTHS, tokens=tokens, page_size=16, cache_dtype="float32", seed=5,
        device=CPU,
    )  # fmt: skip


def prefill_inputs(rope_dim: int = 8) -> PrefillInputs:
    return make_prefill_inputs(shape(rope_dim), (33, 0, 7), (40, 3, 7), seed=5, device=CPU)


def run(operator: str, backend: str, inputs: DecodeInputs | PrefillInputs) -> Tensor:
    return backends_of(operator).get(backend).prepare(inputs).run()["o"]


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", DECODE)
def test_moving_pages_changes_nothing(backend: str) -> None:
    inputs = decode_inputs()
    order = torch.randperm(len(inputs.kv_cache), generator=torch.Generator().manual_seed(1))
    moved = torch.empty_like(inputs.kv_cache)
    moved[order] = inputs.kv_cache
    used = inputs.block_table != UNUSED_PAGE
    table = torch.where(used, order[inputs.block_table.where(used, 0).long()].int(), UNUSED_PAGE)
    elsewhere = replace(inputs, kv_cache=moved, block_table=table)
    assert torch.equal(run("mla_decode", backend, inputs), run("mla_decode", backend, elsewhere))


@pytest.mark.parametrize("backend", DECODE)
def test_splitting_every_page_changes_nothing(backend: str) -> None:
    inputs = decode_inputs()
    pages, size, width = inputs.kv_cache.shape
    used = inputs.block_table[..., None] != UNUSED_PAGE
    halves = 2 * inputs.block_table[..., None].where(used, 0) + torch.tensor([0, 1]).int()
    split = replace(
        inputs,
        kv_cache=inputs.kv_cache.view(2 * pages, size // 2, width),
        block_table=halves.where(used, UNUSED_PAGE).flatten(1),
    )
    assert torch.equal(run("mla_decode", backend, inputs), run("mla_decode", backend, split))


@pytest.mark.parametrize("backend", DECODE)
def test_a_later_token_changes_no_earlier_query(backend: str) -> None:
    inputs = decode_inputs(tokens=3)
    changed = inputs.clone()
    page, slot = inputs.block_table[0, (LENGTHS[0] - 1) // 16], (LENGTHS[0] - 1) % 16
    changed.kv_cache[page, slot] += 1
    before, after = run("mla_decode", backend, inputs), run("mla_decode", backend, changed)
    close(before[0, :2], after[0, :2])
    assert not torch.allclose(before[0, 2], after[0, 2])


@pytest.mark.parametrize("backend", PREFILL)
def test_a_later_token_changes_no_earlier_output(backend: str) -> None:
    inputs = prefill_inputs()
    changed = inputs.clone()
    assert changed.c_kv is not None
    changed.c_kv[39] += 1  # the last token of the first sequence
    before, after = run("mla_prefill", backend, inputs), run("mla_prefill", backend, changed)
    close(before[:32], after[:32])
    close(before[33:], after[33:])
    assert not torch.allclose(before[32], after[32])


@pytest.mark.parametrize("backend", DECODE)
def test_a_sequence_alone_decodes_as_it_does_in_a_batch(backend: str) -> None:
    inputs = decode_inputs()
    alone = replace(
        inputs,
        q=inputs.q[2:3],
        block_table=inputs.block_table[2:3],
        seqlens=inputs.seqlens[2:3],
        lengths=LENGTHS[2:3],
    )
    close(run("mla_decode", backend, inputs)[2:3], run("mla_decode", backend, alone))


@pytest.mark.parametrize("backend", PREFILL)
def test_one_long_prefill_ends_as_a_short_one_behind_its_prefix(backend: str) -> None:
    whole = make_prefill_inputs(shape(), (50,), (50,), seed=5, device=CPU)
    part = replace(whole, q=whole.q[30:], cu_seqlens_q=torch.tensor([0, 20]).int(), q_lengths=(20,))
    close(run("mla_prefill", backend, whole)[30:], run("mla_prefill", backend, part))


@pytest.mark.parametrize("rope_dim", [8, 0])
def test_absorbed_and_expanded_agree(rope_dim: int) -> None:
    decode, prefill = decode_inputs(rope_dim=rope_dim), prefill_inputs(rope_dim=rope_dim)
    close(run("mla_decode", "absorbed", decode), run("mla_decode", "expanded", decode))
    close(run("mla_prefill", "absorbed", prefill), run("mla_prefill", "expanded", prefill))


def test_blocks_of_queries_change_nothing() -> None:
    from benchx_kernels.torch_mla import causal_explicit

    q, k, v = torch.randn(9, 3, 8), torch.randn(12, 3, 8), torch.randn(12, 3, 4)
    whole = causal_explicit(q, k, v, scale=0.3)
    close(causal_explicit(q, k, v, scale=0.3, score_bytes=1), whole)
    close(causal_explicit(q, k, v, scale=0.3, score_bytes=4 * 3 * 12 * 4), whole)
