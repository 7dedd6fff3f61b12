"""Digits follow the interval; absent is never a number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.reporting import numbers
from benchx.reporting.numbers import ABSENT

positive = st.floats(min_value=1e-5, max_value=1e5)
share = st.floats(min_value=1e-4, max_value=0.5)


def test_the_median_has_no_more_decimals_than_its_interval_supports() -> None:
    text = numbers.with_interval(2.63312, 2.6279, 2.6408)
    assert (text.median, text.interval) == ("2.633", "[2.628, 2.641]")


def test_a_wide_interval_leaves_few_digits() -> None:
    assert numbers.with_interval(2.63312, 2.1, 3.1).median == "2.6"


def test_without_an_interval_three_digits_are_printed_and_none_is_claimed() -> None:
    text = numbers.with_interval(2.63312, None, None)
    assert (text.median, text.interval) == ("2.63", ABSENT)


@given(positive, share, share)
def test_rounding_moves_the_median_by_less_than_the_half_width(
    median: float, below: float, above: float
) -> None:
    low, high = median * (1 - below), median * (1 + above)
    text = numbers.with_interval(median, low, high)
    # Five digits at most: a tighter interval than that is not printed in full.
    assert abs(float(text.median) - median) <= max((high - low) / 2, 1e-4 * median)


@given(positive, share, share)
def test_median_and_interval_have_equally_many_decimals(
    median: float, below: float, above: float
) -> None:
    text = numbers.with_interval(median, median * (1 - below), median * (1 + above))
    ends = text.interval.strip("[]").split(", ")
    assert len({len(part.partition(".")[2]) for part in (text.median, *ends)}) == 1


@given(positive)
def test_significant_digits_never_use_an_exponent(value: float) -> None:
    assert math.isclose(float(numbers.digits(value, 3)), value, rel_tol=5.1e-3)
    assert "e" not in numbers.digits(value, 3)


@pytest.mark.parametrize(
    "text",
    [numbers.percent, numbers.scientific, numbers.thousands, numbers.ratio],
)
@pytest.mark.parametrize("value", [None, math.nan])
def test_what_is_absent_is_printed_as_a_dash(text: object, value: float | None) -> None:
    assert callable(text)
    assert text(value) == ABSENT


def test_large_counts_are_printed_with_a_letter() -> None:
    values = (62.04, 5180.0, 5.82e6, 999_600.0)
    assert [numbers.thousands(value) for value in values] == ["62.0", "5.18k", "5.82M", "1.00M"]


def test_a_rate_below_one_tflop_is_printed_in_gflop() -> None:
    assert numbers.flop_rate(796.2) == "796 TFLOP/s"
    assert numbers.flop_rate(0.0151) == "15.1 GFLOP/s"


def test_an_interval_over_three_launches_is_not_called_a_95_percent_interval() -> None:
    assert "75 %" in numbers.interval_words(3)
    assert "95 %" not in numbers.interval_words(5)
    assert "95 % or more" in numbers.interval_words(6)
