"""Figures that others published of these models, from our descriptors."""

from __future__ import annotations

import pytest

from benchx.architectures import Architecture, load_architecture, shipped_architectures
from benchx.architectures.cache import (
    CacheFormat,
    Ranks,
    cache_bytes_per_token,
    check_ranks,
    rank_cache_bytes_per_token,
    rank_state_bytes,
    sequence_bytes,
    state_bytes_per_sequence,
)
from benchx.architectures.flops import decode_flops, prefill_flops
from benchx.architectures.parameters import expert_parameters, parameters
from benchx.architectures.tiers import kv_throughput_gb_s
from benchx.core.errors import UsageError

MIB = 2**20
BF16, FP8 = CacheFormat(), CacheFormat(cache_dtype="fp8")


@pytest.fixture(scope="module")
def k3() -> Architecture:
    return load_architecture("kimi-k3")


def test_an_expert_of_k3_has_33_million_parameters_at_the_latent_width(k3: Architecture) -> None:
    assert k3.moe is not None
    assert expert_parameters(k3.moe, k3.hidden) == 33_030_144


def test_k3_has_2_72_trillion_routed_parameters(k3: Architecture) -> None:
    assert parameters(k3).routed == pytest.approx(2.72e12, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("kimi-k3", 2.78e12, 104e9),
        ("kimi-k2", 1.03e12, 32e9),
        ("deepseek-v3", 671e9, 37e9),
        ("qwen3-235b-a22b", 235e9, 22e9),
        ("llama-3.1-70b", 70.6e9, 69.5e9),
        ("kimi-linear-48b-a3b", 49e9, 3.1e9),
    ],
)
def test_total_and_active_parameters_are_the_published_ones(
    name: str, total: float, active: float
) -> None:
    found = parameters(load_architecture(name))
    assert found.total == pytest.approx(total, rel=0.005)
    assert found.active == pytest.approx(active, rel=0.025)


def test_the_checkpoint_of_k3_is_1_561_terabytes(k3: Architecture) -> None:
    published = k3.checkpoint
    size = parameters(k3).weight_bytes(routed=published.routed_experts, others=published.others)
    assert size == pytest.approx(1.561e12, rel=1e-3)


def test_k3_leaves_27648_bytes_a_token_in_bf16_and_half_in_fp8(k3: Architecture) -> None:
    assert cache_bytes_per_token(k3, BF16) == 27_648
    assert cache_bytes_per_token(k3, FP8) == 13_824


def test_the_state_of_k3_is_428_6_mib_a_sequence(k3: Architecture) -> None:
    assert state_bytes_per_sequence(k3, BF16) / MIB == pytest.approx(428.6, abs=0.05)


def test_two_draft_tokens_make_54_78_mib_of_state_a_rank_of_eight(k3: Architecture) -> None:
    form = CacheFormat(draft_tokens=2)
    assert rank_state_bytes(k3, form, Ranks(tensor=8)) / MIB == pytest.approx(54.78, abs=0.005)


def test_kimi_linear_leaves_8064_bytes_a_token_and_43_4_megabytes_of_state() -> None:
    arch = load_architecture("kimi-linear-48b-a3b")
    assert cache_bytes_per_token(arch, BF16) == 8_064
    assert state_bytes_per_sequence(arch, BF16) / 1e6 == pytest.approx(43.4, abs=0.05)


@pytest.mark.parametrize("name", ["kimi-k2", "deepseek-v3"])
def test_all_mla_leaves_70272_bytes_a_token_and_no_state(name: str) -> None:
    arch = load_architecture(name)
    assert cache_bytes_per_token(arch, BF16) == 70_272
    assert state_bytes_per_sequence(arch, BF16) == 0


@pytest.mark.parametrize(
    ("context", "mla", "with_state", "bf16_with_state"),
    [("32k", 0.45, 0.90, 1.36), ("128k", 1.81, 2.26, 4.07), ("1M", 14.5, 14.9, 29.4)],
)
def test_the_table_of_k3_cache_sizes_is_reproduced(
    k3: Architecture, context: str, mla: float, with_state: float, bf16_with_state: float
) -> None:
    tokens = {"32k": 2**15, "128k": 2**17, "1M": 2**20}[context]
    assert sequence_bytes(k3, FP8, tokens, checkpoints=0) / 1e9 == pytest.approx(mla, rel=0.01)
    assert sequence_bytes(k3, FP8, tokens) / 1e9 == pytest.approx(with_state, rel=0.01)
    assert sequence_bytes(k3, BF16, tokens) / 1e9 == pytest.approx(bf16_with_state, rel=0.01)


PUBLISHED = [  # tokens, MiB left behind, seconds, Gbit/s: arXiv 2604.15039, table 5
    ("1k", 190.8, 0.44, 3.61),
    ("8k", 308.9, 0.72, 3.59),
    ("32k", 701.3, 1.84, 3.19),
    ("128k", 2316.3, 7.40, 2.62),
]


@pytest.mark.parametrize(("tokens", "mib", "seconds", "gbit_s"), PUBLISHED)
def test_the_prefill_as_a_service_table_follows_from_bytes_and_time(
    tokens: str, mib: float, seconds: float, gbit_s: float
) -> None:
    """Bytes and seconds are rounded as printed, so the rate is known within an interval only."""
    low = 8 * kv_throughput_gb_s((mib - 0.05) * MIB, seconds + 0.005)
    high = 8 * kv_throughput_gb_s((mib + 0.05) * MIB, seconds - 0.005)
    assert low - 0.005 <= gbit_s <= high + 0.005


def test_the_latent_is_replicated_by_tensor_ranks_and_split_by_context_ranks(
    k3: Architecture,
) -> None:
    assert rank_cache_bytes_per_token(k3, FP8, Ranks(tensor=8)) == 13_824
    assert rank_cache_bytes_per_token(k3, FP8, Ranks(tensor=8, context=8)) == 13_824 / 8


def test_grouped_query_heads_are_split_until_there_are_none_left() -> None:
    arch = load_architecture("qwen3-235b-a22b")
    whole = cache_bytes_per_token(arch, BF16)
    assert rank_cache_bytes_per_token(arch, BF16, Ranks(tensor=2)) == whole / 2
    assert rank_cache_bytes_per_token(arch, BF16, Ranks(tensor=16)) == whole / 4


@pytest.mark.parametrize("name", shipped_architectures())
def test_a_token_costs_twice_the_active_parameters_where_attention_is_short(name: str) -> None:
    arch = load_architecture(name)
    active = 2.0 * parameters(arch).active
    assert decode_flops(arch, 1) == pytest.approx(active, rel=0.02)
    head = 2.0 * arch.vocab * arch.hidden
    kda = 0.04 if arch.kda else 0.0
    assert prefill_flops(arch, 64) / 64 == pytest.approx(active - head * 63 / 64, rel=0.02 + kda)


@pytest.mark.parametrize("name", shipped_architectures())
def test_a_cached_prefix_is_never_dearer_than_computing_it(name: str) -> None:
    arch = load_architecture(name)
    whole = prefill_flops(arch, 8192)
    assert prefill_flops(arch, 4096, prefix=4096) < whole


def test_a_step_of_several_tokens_is_causal_and_has_one_output_head(k3: Architecture) -> None:
    head = 2.0 * k3.vocab * k3.hidden
    one_by_one = sum(decode_flops(k3, context) for context in (998, 999, 1000))
    assert decode_flops(k3, 1000, tokens=3) == pytest.approx(one_by_one - 2 * head, rel=1e-12)


def test_routed_experts_are_spread_over_the_more_of_both_ranks(k3: Architecture) -> None:
    counted = parameters(k3)

    def bytes_of(**ranks: int) -> int:
        return counted.rank_weight_bytes(routed="mxfp4", others="bfloat16", **ranks)

    routed, rest = counted.routed * 0.53125, (counted.total - counted.routed) * 2.0
    assert bytes_of(tensor=8) == pytest.approx(routed / 8 + rest / 8)
    assert bytes_of(tensor=8, expert=16) == pytest.approx(routed / 16 + rest / 8)
    assert bytes_of(tensor=8, expert=4) == pytest.approx(routed / 8 + rest / 8)


@pytest.mark.parametrize(
    ("name", "ranks", "told"),
    [
        ("kimi-k3", Ranks(tensor=5), "5 tensor ranks do not divide the 96 heads of kimi-k3"),
        ("kimi-linear-48b-a3b", Ranks(tensor=64), "do not divide the 32 heads"),
        ("llama-3.1-70b", Ranks(expert=8), "8 expert ranks; llama-3.1-70b has 0 experts"),
        ("kimi-k3", Ranks(tensor=8, expert=1000), "1000 expert ranks; kimi-k3 has 896"),
    ],
)
def test_ranks_that_heads_or_experts_can_not_be_spread_over_are_refused(
    name: str, ranks: Ranks, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        check_ranks(load_architecture(name), ranks)


def test_ranks_of_a_published_deployment_are_no_problem(k3: Architecture) -> None:
    check_ranks(k3, Ranks(tensor=8, context=8, expert=32))
    check_ranks(k3, Ranks(tensor=16, expert=32))


def test_decode_grows_with_context_by_the_full_attention_layers_only(k3: Architecture) -> None:
    assert k3.mla is not None
    a_token = 2 * 24 * 96 * (2 * 512 + 64)
    assert decode_flops(k3, 2000) - decode_flops(k3, 1000) == pytest.approx(1000 * a_token)


def test_a_few_tokens_behind_a_long_prefix_are_counted_as_a_decode_step_counts_them() -> None:
    """MLA is then cheaper absorbed, whatever the phase is called."""
    arch = load_architecture("deepseek-v3")
    assert prefill_flops(arch, 4, prefix=131068) == decode_flops(arch, 131072, tokens=4)
    assert prefill_flops(arch, 8192) < 8192 * decode_flops(arch, 8192)
