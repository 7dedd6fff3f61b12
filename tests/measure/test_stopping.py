"""When sampling ends, and how a call is judged to be warm."""

from __future__ import annotations

from itertools import chain, repeat

import numpy as np
import pytest

from benchx.measure.stopping import StoppingRule
from benchx.measure.warmup import until_steady
from benchx.stats.summary import median_interval

RULE = StoppingRule(target_error=0.01, max_time_s=10, min_samples=20, max_samples=100)


def test_steady_samples_stop_at_the_target_error() -> None:
    assert RULE.stop([1.0] * 20, 0.1) == "target_error"


def test_too_few_samples_never_stop_at_the_target_error() -> None:
    assert RULE.stop([1.0] * 19, 0.1) is None


def test_scattered_samples_go_on_until_a_limit() -> None:
    scattered = [1.0, 2.0] * 30
    assert RULE.stop(scattered, 1.0) is None
    assert RULE.stop(scattered, 10.0) == "max_time"
    assert RULE.stop([1.0, 2.0] * 50, 1.0) == "max_samples"


def test_the_time_limit_comes_before_the_fewest_samples() -> None:
    assert RULE.stop([5000.0] * 2, 10.0) == "max_time"


def test_nothing_stops_before_the_first_sample() -> None:
    assert RULE.stop([], 1e9) is None


def test_a_few_wild_samples_do_not_keep_the_median_from_its_target() -> None:
    assert RULE.stop([1.0] * 27 + [9.0] * 3, 0.1) == "target_error"


def test_a_target_of_zero_never_stops_early() -> None:
    rule = StoppingRule(target_error=0, max_samples=50)
    assert rule.stop([1.0] * 49, 0.1) is None
    assert rule.stop([1.0] * 50, 0.1) == "max_samples"


def test_looking_after_every_batch_costs_the_interval_little_of_its_coverage() -> None:
    rule = StoppingRule(target_error=0.01, min_samples=20, max_samples=1000)
    generator, covered = np.random.default_rng(1), 0
    for _ in range(300):
        samples = generator.lognormal(sigma=0.03, size=1000)
        count = 5
        while rule.stop(list(samples[:count]), 0.0) is None:
            count += 5
        low, high = median_interval(samples[:count])
        covered += low <= 1.0 <= high
    assert covered >= 0.88 * 300


def test_compile_time_is_the_first_call_less_a_steady_one() -> None:
    times = chain([9.0], repeat(0.1))
    result = until_steady(lambda: next(times), min_time_s=0.0, max_time_s=5.0)
    assert result.compile_time_s == pytest.approx(8.9)
    assert (result.steady, result.calls) == (True, 4)


def test_a_second_slow_call_does_not_count_as_steady() -> None:
    times = chain([9.0, 2.0, 0.1, 0.1, 0.1])
    result = until_steady(lambda: next(times), min_time_s=0.0, max_time_s=5.0)
    assert result.steady_call_s == pytest.approx(0.1)
    assert result.calls == 5


def test_warm_up_of_a_restless_call_ends_and_says_so() -> None:
    times = chain([1.0], (1.0 if index % 2 else 2.0 for index in range(100)))
    result = until_steady(lambda: next(times), min_time_s=0.0, max_time_s=5.0)
    assert not result.steady


def test_a_very_slow_call_is_made_once_more_and_no_oftener() -> None:
    times = iter([60.0, 50.0])
    result = until_steady(lambda: next(times), min_time_s=0.05, max_time_s=5.0)
    assert (result.calls, result.steady, result.compile_time_s) == (2, False, 10.0)


def test_a_first_call_as_fast_as_the_rest_has_no_compile_time() -> None:
    result = until_steady(lambda: 0.2, min_time_s=0.0, max_time_s=5.0)
    assert result.compile_time_s == 0.0


def test_a_short_call_is_repeated_until_the_clocks_are_up() -> None:
    result = until_steady(lambda: 0.001, min_time_s=0.05, max_time_s=5.0)
    assert result.calls - 1 >= 50
