"""The stack of layers: chunking, decoding and caches must not change what it computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from benchx_kernels.model_attention import TorchAttention
from benchx_kernels.model_cache import KdaCache, RowCache, StackCache
from benchx_kernels.model_mlp import MoeMlp, gated, grouped
from benchx_kernels.model_residual import BlockStream, Reading, SumStream
from benchx_kernels.model_shapes import (
    GqaShape,
    KdaShape,
    MlaShape,
    MoeShape,
    SituShape,
    StackShape,
)
from benchx_kernels.model_stack import Stack
from benchx_kernels.model_weights import Draw
from benchx_kernels.short_conv import short_conv

CPU = torch.device("cpu")
KDA = KdaShape(
    heads=2, head_dim=16, value_dim=16, conv=4, gate="softplus", lower_bound=-5.0,
    full_rank_gate=False,
)  # fmt: skip
MLA = MlaShape(
    heads=2, q_lora=None, kv_lora=32, nope_dim=16, rope_dim=8, value_dim=16, output_gate=False,
    rope=False,
)  # fmt: skip
MOE = MoeShape(experts=8, top_k=2, shared=1, intermediate=32, latent=None, latent_norm=False)
HYBRID = StackShape(
    hidden=64, vocab=50, mixers=("kda", "kda", "mla"), is_moe=(False, True, True), kda=KDA,
    mla=MLA, gqa=None, moe=MOE, dense_intermediate=96, tied=False,
)  # fmt: skip
SHAPES = {
    "hybrid": HYBRID,
    "k3": replace(
        HYBRID,
        kda=replace(KDA, gate="bounded", full_rank_gate=True),
        mla=replace(MLA, q_lora=24, output_gate=True),
        moe=replace(MOE, latent=32, latent_norm=True, shared=2),
        situ=SituShape(beta=4.0, linear_beta=25.0),
        residual_block=2,
    ),
    "mla with positions": replace(
        HYBRID, mixers=("mla", "mla", "mla"), kda=None, mla=replace(MLA, rope=True),
        moe=replace(MOE, groups=4, top_groups=2, scale=2.5),
    ),
    "grouped query": replace(
        HYBRID, mixers=("gqa", "gqa", "gqa"), kda=None, mla=None, tied=True,
        moe=replace(MOE, router="softmax", shared=0),
        gqa=GqaShape(heads=4, kv_heads=2, head_dim=16, qk_norm=True),
    ),
}  # fmt: skip
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def run(
    stack: Stack, tokens: Tensor, *, chunk: int, decode_from: int | None = None
) -> tuple[Tensor, StackCache]:
    """Logits after all tokens: prefill in chunks, the last ones decoded one by one."""
    cache = stack.new_cache(sequences=tokens.shape[0], capacity=tokens.shape[1],
                            state_dtype=torch.float64)  # fmt: skip
    attention = TorchAttention()
    end = tokens.shape[1] if decode_from is None else decode_from
    logits = stack.prefill(tokens[:, :end], cache, attention, chunk=chunk)
    for position in range(end, tokens.shape[1]):
        one = tokens[:, position : position + 1]
        logits = stack.forward(one, cache, attention, decode=True)
    return logits, cache


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, 50, (2, 23), generator=torch.Generator().manual_seed(1))


def small(shape: StackShape) -> Stack:
    return Stack(shape, seed=0, dtype=torch.float64, device=CPU)


@each_shape
@pytest.mark.parametrize("chunk", [1, 7])
def test_prefill_in_chunks_is_prefill_at_once(
    shape: StackShape, chunk: int, tokens: Tensor
) -> None:
    stack = small(shape)
    whole, cache = run(stack, tokens, chunk=23)
    parts, other = run(stack, tokens, chunk=chunk)
    torch.testing.assert_close(parts, whole)
    for one, two in zip(cache.layers, other.layers, strict=True):
        for name, value in vars(one).items():
            torch.testing.assert_close(getattr(two, name), value)


@each_shape
def test_decode_continues_what_prefill_began(shape: StackShape, tokens: Tensor) -> None:
    stack = small(shape)
    whole, _ = run(stack, tokens, chunk=23)
    decoded, _ = run(stack, tokens, chunk=23, decode_from=19)
    torch.testing.assert_close(decoded, whole)


@each_shape
def test_the_future_does_not_change_the_past(shape: StackShape, tokens: Tensor) -> None:
    stack = small(shape)
    before, _ = run(stack, tokens[:, :20], chunk=20)
    cache = stack.new_cache(sequences=2, capacity=23, state_dtype=torch.float64)
    after = stack.prefill(tokens[:, :20], cache, TorchAttention(), chunk=7)
    torch.testing.assert_close(after, before)


@each_shape
def test_sequences_of_a_batch_do_not_see_each_other(shape: StackShape, tokens: Tensor) -> None:
    stack = small(shape)
    both, _ = run(stack, tokens, chunk=23)
    for row in range(2):
        alone, _ = run(stack, tokens[row : row + 1], chunk=23)
        torch.testing.assert_close(alone, both[row : row + 1])


@each_shape
def test_bf16_weights_run_in_fp64_give_the_truth_of_the_bf16_run(shape: StackShape) -> None:
    stack = Stack(shape, seed=0, dtype=torch.bfloat16, device=CPU)
    tokens = torch.arange(12)[None]
    rounded = stack.forward(tokens, stack.new_cache(sequences=1, capacity=12), TorchAttention())
    exact_cache = stack.new_cache(
        sequences=1, capacity=12, cache_dtype=torch.float64, state_dtype=torch.float64
    )
    exact = stack.forward(tokens, exact_cache, TorchAttention(), dtype=torch.float64)
    assert exact.dtype is torch.float64
    assert (rounded - exact).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize("shape", [s for s in SHAPES.values() if not s.tied])
def test_the_logits_have_unit_variance(shape: StackShape, tokens: Tensor) -> None:
    logits, _ = run(small(shape), tokens, chunk=23)
    assert 0.5 < float(logits.std()) < 2


def test_a_full_cache_is_refused_before_anything_is_written(tokens: Tensor) -> None:
    stack = small(HYBRID)
    cache = stack.new_cache(sequences=2, capacity=10)
    with pytest.raises(ValueError, match="23 tokens do not fit a cache of 10"):
        stack.forward(tokens, cache, TorchAttention())
    assert cache.tokens == 0


def test_equal_seeds_give_equal_weights() -> None:
    one, two = small(HYBRID), small(HYBRID)
    for a, b in zip(one.weights(), two.weights(), strict=True):
        assert torch.equal(a, b)


def test_a_cleared_cache_serves_another_prompt(tokens: Tensor) -> None:
    stack, attention = small(HYBRID), TorchAttention()
    fresh, cache = run(stack, tokens, chunk=23)
    cache.clear()
    again = stack.prefill(tokens, cache, attention, chunk=23)
    torch.testing.assert_close(again, fresh)


def test_a_filled_cache_says_how_much_it_holds() -> None:
    stack = small(HYBRID)
    cache = stack.new_cache(sequences=3, capacity=10)
    cache.fill(7, torch.Generator().manual_seed(0))
    rows = [layer for layer in cache.layers if isinstance(layer, RowCache)]
    states = [layer for layer in cache.layers if isinstance(layer, KdaCache)]
    assert cache.cache_bytes() == len(rows) * 3 * 7 * 40 * 8
    assert cache.state_bytes() == len(states) * 3 * (2 * 16 * 16 * 4 + 3 * 96 * 8)


def test_situ_is_silu_where_it_is_not_bounded_and_never_passes_its_bounds() -> None:
    x, wide = torch.linspace(-40, 40, 81), SituShape(beta=4.0, linear_beta=25.0)
    far = SituShape(beta=1e4, linear_beta=1e4)
    torch.testing.assert_close(gated(x, x, far), gated(x, x, None), rtol=1e-4, atol=1e-6)
    expected = 4 * torch.tanh(x / 4) * torch.sigmoid(x) * 25 * torch.tanh(x / 25)
    torch.testing.assert_close(gated(x, x, wide), expected)
    assert float(gated(x * 100, x * 100, wide).abs().max()) <= 100


def test_a_layer_reads_the_blocks_before_and_what_its_own_block_has_so_far() -> None:
    drawn = torch.Generator().manual_seed(0)
    outputs = torch.randn(8, 2, 3, 16, generator=drawn, dtype=torch.float64)
    query, norm = torch.randn(2, 16, generator=drawn, dtype=torch.float64)
    reading, embedding = Reading(query, norm), torch.ones(2, 3, 16, dtype=torch.float64)

    def mixed(*sources: Tensor) -> Tensor:
        values = torch.stack(sources)
        keys = torch.nn.functional.rms_norm(values, (16,), norm, 1e-5)
        return ((keys @ query).softmax(0)[..., None] * values).sum(0)

    stream, (first, second) = BlockStream(embedding, 2), outputs.split(4)
    stream.enter(0)
    torch.testing.assert_close(stream.read(reading), embedding)
    for index, y in enumerate(first):
        if index == 2:
            stream.enter(1)  # the second layer of the same block
        stream.add(y)
        torch.testing.assert_close(
            stream.read(reading), mixed(embedding, first[: index + 1].sum(0))
        )
    stream.enter(2)
    torch.testing.assert_close(stream.read(reading), mixed(embedding, first.sum(0)))
    for y in second:
        stream.add(y)
    torch.testing.assert_close(
        stream.read(reading, last=True)[:, 0],
        mixed(embedding, first.sum(0), second.sum(0))[:, -1],
    )


def test_without_attention_residuals_the_stream_is_a_sum() -> None:
    stream, nothing = SumStream(torch.ones(1, 2, 4)), Reading(None, None)
    stream.add(torch.full((1, 2, 4), 2.0))
    assert torch.equal(stream.read(nothing), torch.full((1, 2, 4), 3.0))
    assert stream.read(nothing, last=True).shape == (1, 1, 4)


@pytest.mark.parametrize("router", ["sigmoid", "softmax"])
def test_experts_are_chosen_from_the_best_groups_and_weighted_by_their_own_scores(
    router: Literal["sigmoid", "softmax"],
) -> None:
    shape = replace(MOE, router=router, groups=4, top_groups=1, scale=2.5)
    mlp = MoeMlp(shape, 64, Draw.seeded(0, torch.float64, CPU))
    x = torch.randn(40, 64, dtype=torch.float64)
    weights, chosen = mlp._route(x)
    logits = x @ mlp.router.T
    scores = logits.softmax(-1) if router == "softmax" else logits.sigmoid()
    ranked = scores if mlp.bias is None else scores + mlp.bias
    best = ranked.view(40, 4, 2).sum(-1).argmax(-1)
    assert torch.equal(chosen.sort(-1).values, torch.stack([2 * best, 2 * best + 1], -1))
    own = scores.gather(-1, chosen)
    torch.testing.assert_close(weights, 2.5 * own / own.sum(-1, keepdim=True))


def test_experts_in_groups_are_experts_one_by_one() -> None:
    draw = Draw.seeded(0, torch.float32, CPU)
    mlp = MoeMlp(MOE, 64, draw)
    x = torch.randn(9, 64)
    weights, experts = mlp._route(x)
    expected = torch.zeros_like(x)
    for row in range(9):
        for weight, expert in zip(weights[row], experts[row], strict=True):
            gate, up = (x[row] @ mlp.gate_up[expert].T).chunk(2)
            expected[row] += weight * ((gate.sigmoid() * gate * up) @ mlp.down[expert].T)
    torch.testing.assert_close(mlp._routed(x, weights, experts), expected, rtol=1e-4, atol=1e-4)


def test_grouped_products_are_the_same_by_hand_in_fp64() -> None:
    x, weights = torch.randn(7, 16), torch.randn(4, 24, 16)
    ends = torch.tensor([0, 3, 3, 7], dtype=torch.int32)
    exact = grouped(x.double(), weights, ends)
    torch.testing.assert_close(grouped(x, weights, ends).double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_convolution_is_that_of_torch(width: int) -> None:
    x, taps = torch.randn(2, 9, 6, dtype=torch.float64), torch.randn(6, width, dtype=torch.float64)
    window = torch.zeros(2, width - 1, 6, dtype=torch.float64)
    padded = torch.nn.functional.pad(x.transpose(1, 2), (width - 1, 0))
    expected = torch.nn.functional.conv1d(padded, taps[:, None], groups=6).transpose(1, 2)
    found = torch.cat([short_conv(x[:, :4], taps, window), short_conv(x[:, 4:], taps, window)], 1)
    torch.testing.assert_close(found, torch.nn.functional.silu(expected))
    torch.testing.assert_close(window, x[:, 9 - (width - 1) :])
