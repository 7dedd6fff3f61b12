"""What the summaries promise: equivariance, order, support and coverage."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchx.stats import summary

times = st.floats(min_value=1e-6, max_value=1e6)
samples = st.lists(times, min_size=1, max_size=80)
launches = st.lists(times, min_size=3, max_size=12)


@given(samples, st.floats(min_value=1e-3, max_value=1e3))
def test_median_scales_with_the_unit(values: list[float], factor: float) -> None:
    scaled = [value * factor for value in values]
    assert summary.median(scaled) == pytest.approx(summary.median(values) * factor, rel=1e-12)


@given(samples, st.randoms(use_true_random=False))
def test_summaries_do_not_depend_on_the_order_of_the_samples(
    values: list[float], random: Random
) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    for function in (summary.median, summary.median_interval):
        assert function(shuffled) == function(values)
    assert summary.percentile_or_none(shuffled, 90) == summary.percentile_or_none(values, 90)
    assert summary.geometric_mean(shuffled) == pytest.approx(summary.geometric_mean(values))


@given(samples)
def test_the_median_lies_in_its_interval(values: list[float]) -> None:
    interval = summary.median_interval(values)
    assume(interval is not None)
    assert interval.low <= summary.median(values) <= interval.high


@given(st.lists(times, min_size=6, max_size=80), st.floats(min_value=1e-3, max_value=1e3))
def test_median_interval_scales_with_the_unit(values: list[float], factor: float) -> None:
    interval = summary.median_interval(values)
    scaled = summary.median_interval([value * factor for value in values])
    assert scaled.low == pytest.approx(interval.low * factor, rel=1e-12)
    assert scaled.high == pytest.approx(interval.high * factor, rel=1e-12)


@given(st.lists(times, min_size=9, max_size=80))
def test_more_confidence_never_narrows_the_interval(values: list[float]) -> None:
    narrow, wide = (summary.median_interval(values, level) for level in (0.9, 0.99))
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


@pytest.mark.parametrize(
    ("n", "low", "high"),
    # Ranks from the tables of binomial confidence limits for the median at 95 %.
    [(6, 1, 6), (10, 2, 9), (20, 6, 15), (30, 10, 21), (100, 40, 61)],
)
def test_median_interval_uses_the_tabulated_ranks(n: int, low: float, high: float) -> None:
    assert summary.median_interval(range(1, n + 1)) == (low, high)


def test_five_samples_are_too_few_for_a_95_percent_interval() -> None:
    assert summary.median_interval([1, 2, 3, 4, 5]) is None
    assert summary.median_interval([]) is None


def test_median_interval_covers_the_median_of_a_skewed_distribution() -> None:
    generator = np.random.default_rng(7)
    draws = generator.lognormal(sigma=1.0, size=(2000, 25))
    intervals = [summary.median_interval(row) for row in draws]
    covered = np.mean([low <= 1.0 <= high for low, high in intervals])
    assert 0.94 < covered <= 1.0


def test_median_interval_of_many_samples_stays_finite() -> None:
    interval = summary.median_interval(range(20_000))
    assert 9_700 < interval.low < 9_999.5 < interval.high < 10_300


def test_a_percentile_without_support_is_not_stated() -> None:
    assert summary.percentile_or_none([1.0] * 99, 95) is None
    assert summary.percentile_or_none([1.0] * 100, 95) == 1.0
    assert summary.percentile_or_none([1.0] * 9, 50) is None
    assert summary.percentile_or_none([1.0] * 99, 5) is None


@given(st.lists(times, min_size=100, max_size=200))
def test_percentiles_are_ordered_and_within_the_samples(values: list[float]) -> None:
    p50, p95 = (summary.percentile_or_none(values, q) for q in (50, 95))
    assert min(values) <= p50 <= p95 <= max(values)


@pytest.mark.parametrize("q", [0, 100, -1, 101, math.nan])
def test_percentiles_outside_the_open_range_are_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        summary.percentile_or_none([1.0] * 100, q)


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf]])
def test_samples_that_are_no_numbers_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="samples"):
        summary.median(bad)


def test_fewer_than_three_launches_give_no_interval() -> None:
    assert summary.launch_interval([]) is None
    assert summary.launch_interval([1.0, 2.0]) is None


@pytest.mark.parametrize("n", [3, 4, 5])
def test_three_to_five_launches_give_the_range_that_was_seen(n: int) -> None:
    values = [float(value) for value in range(n, 0, -1)]
    assert summary.launch_interval(values) == (1.0, float(n))


@pytest.mark.parametrize(
    ("n", "coverage"), [(3, 0.75), (4, 0.875), (5, 0.9375), (6, 0.96875), (7, 0.984375)]
)
def test_the_range_covers_the_median_unless_all_lie_on_one_side(n: int, coverage: float) -> None:
    assert summary.median_coverage(n) == pytest.approx(coverage, abs=1e-12)


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (6, 0), (6, 4)])
def test_ranks_beyond_the_middle_have_no_coverage(n: int, rank: int) -> None:
    with pytest.raises(ValueError, match="ranks"):
        summary.median_coverage(n, rank)


@pytest.mark.parametrize("n", range(6, 41))
def test_from_six_launches_on_the_interval_is_the_tightest_with_95_percent(n: int) -> None:
    interval = summary.launch_interval(range(1, n + 1))
    rank = int(interval.low)
    assert interval.high == n + 1 - rank
    assert summary.median_coverage(n, rank) >= 0.95
    assert rank == n // 2 or summary.median_coverage(n, rank + 1) < 0.95


@pytest.mark.parametrize("n", [3, 5, 6, 7, 8, 9, 12, 20])
@pytest.mark.parametrize("draw", ["lognormal", "normal", "exponential"])
def test_launch_intervals_cover_the_median_as_often_as_they_say(n: int, draw: str) -> None:
    generator = np.random.default_rng(n)
    true_median = {"lognormal": 1.0, "normal": 0.0, "exponential": math.log(2)}[draw]
    rows = getattr(generator, draw)(size=(4000, n))
    intervals = [summary.launch_interval(row) for row in rows]
    covered = np.mean([low <= true_median <= high for low, high in intervals])
    rank = int(summary.launch_interval(range(1, n + 1)).low)
    claimed = summary.median_coverage(n, rank)
    assert covered == pytest.approx(claimed, abs=4 * math.sqrt(claimed * (1 - claimed) / 4000))


@given(launches, st.randoms(use_true_random=False))
def test_launch_interval_holds_the_median_whatever_the_order(
    values: list[float], random: Random
) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    interval = summary.launch_interval(values)
    assert summary.launch_interval(shuffled) == interval
    assert min(values) <= interval.low <= summary.median(values) <= interval.high <= max(values)


@given(samples, st.floats(min_value=1e-3, max_value=1e3))
def test_geometric_mean_scales_with_the_unit(values: list[float], factor: float) -> None:
    scaled = summary.geometric_mean([value * factor for value in values])
    assert scaled == pytest.approx(summary.geometric_mean(values) * factor, rel=1e-9)


def test_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert summary.geometric_mean([4.0, 0.25]) == pytest.approx(1.0)


def test_geometric_mean_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        summary.geometric_mean([1.0, 0.0])


def test_relative_difference_is_signed_and_needs_a_base() -> None:
    assert summary.relative_difference(1.1, 1.0) == pytest.approx(0.1)
    assert summary.relative_difference(0.9, 1.0) == pytest.approx(-0.1)
    with pytest.raises(ValueError, match="base"):
        summary.relative_difference(1.0, 0.0)
