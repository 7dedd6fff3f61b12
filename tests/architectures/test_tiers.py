"""Load or recompute: the break-even, by brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.architectures.tiers import (
    Footprint,
    PrefillModel,
    Tier,
    checkpoint_interval,
    loading_wins_from,
    sequences_that_fit,
)

MOST = 4096


def wins(tier: Tier, left: Footprint, prefill: PrefillModel, tokens: int) -> bool:
    return tier.load_seconds(left.total_bytes(tokens)) < prefill.seconds(tokens)


@given(
    linear=st.floats(1e-6, 1e-3),
    quadratic=st.sampled_from([0.0, 1e-9, 1e-7]),
    per_token=st.integers(1, 10**6),
    state=st.integers(0, 10**9),
    bandwidth=st.floats(0.1, 500.0),
    latency=st.sampled_from([0.0, 1e-3]),
    fixed=st.sampled_from([0.0, 5e-3]),
)
def test_loading_wins_from_the_first_length_on_and_not_before(
    linear: float,
    quadratic: float,
    per_token: int,
    state: int,
    bandwidth: float,
    latency: float,
    fixed: float,
) -> None:
    tier = Tier(name="t", bandwidth_gb_s=bandwidth, latency_s=latency, source="drawn")
    left = Footprint(per_token_bytes=per_token, state_bytes=state)
    prefill = PrefillModel(fixed_s=fixed, linear_s=linear, quadratic_s=quadratic, source="drawn")
    first = loading_wins_from(tier, left, prefill)
    if first is None:
        assert not wins(tier, left, prefill, 10**9)
        return
    assert all(wins(tier, left, prefill, first * times + 1) for times in (1, 2, 3, 10, 1000))
    if first > 2:
        assert not wins(tier, left, prefill, first - 2)


def test_a_tier_slower_than_the_cache_grows_never_wins_against_linear_prefill() -> None:
    tier = Tier(name="tape", bandwidth_gb_s=0.001, source="made up")
    left = Footprint(per_token_bytes=10_000, state_bytes=0)
    assert loading_wins_from(tier, left, PrefillModel(linear_s=1e-6, quadratic_s=0, source="")) is (
        None
    )


def test_a_checkpoint_must_save_what_loading_it_takes() -> None:
    tier = Tier(name="nvme", bandwidth_gb_s=10, source="made up")
    prefill = PrefillModel(linear_s=1e-4, quadratic_s=0, source="made up")
    left = Footprint(per_token_bytes=1, state_bytes=1e9)
    assert checkpoint_interval(tier, left, prefill) == 1000
    assert checkpoint_interval(tier, Footprint(per_token_bytes=1, state_bytes=0), prefill) is None
    flat = PrefillModel(fixed_s=1.0, linear_s=0.0, quadratic_s=0.0, source="a noisy fit")
    assert checkpoint_interval(tier, left, flat) is None


@pytest.mark.parametrize(("weights", "expected"), [(0, 10), (55, 4), (95, 0), (200, 0)])
def test_sequences_fit_beside_the_weights_or_not_at_all(weights: int, expected: int) -> None:
    assert sequences_that_fit(100, weights, 10) == expected
