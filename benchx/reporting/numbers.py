"""Numbers as people read them: no more digits than the interval supports."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchx.stats.summary import median_coverage

ABSENT = "-"
"""Printed where there is no figure."""

_MAX_DIGITS = 5


@dataclass(frozen=True)
class IntervalText:
    """A median and its interval, printed with the same number of decimals."""

    median: str
    interval: str


def is_absent(value: float | None) -> bool:
    """Whether there is no figure: None or NaN."""
    return value is None or math.isnan(value)


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def _decimals(median: float, low: float, high: float) -> int:
    """Decimals so that the half-width keeps one digit."""
    most = _MAX_DIGITS - 1 - _magnitude(median)
    half = (high - low) / 2
    if half <= 0:
        return max(0, min(3 - _magnitude(median), most))
    wanted = -_magnitude(half)
    shown = max(wanted, -_magnitude(low)) if low > 0 else wanted
    return max(0, min(shown, most))


def with_interval(median: float | None, low: float | None, high: float | None) -> IntervalText:
    """Median and interval in the median's unit; without an interval, three digits and no claim."""
    if median is None or math.isnan(median):
        return IntervalText(ABSENT, ABSENT)
    if median <= 0 or low is None or high is None or math.isnan(low) or math.isnan(high):
        return IntervalText(digits(median, 3), ABSENT)
    places = _decimals(median, low, high)
    return IntervalText(f"{median:.{places}f}", f"[{low:.{places}f}, {high:.{places}f}]")


def interval_words(launches: int) -> str:
    """What an interval over that many launches is.

    Six launches and more are held to 95 %; the range of fewer covers the true median with less
    (`stats.summary.launch_interval`).
    """
    coverage = median_coverage(launches)
    if coverage >= 0.95:
        return "order-statistic interval over launches (holds the true median with 95 % or more)"
    share = f"{100 * coverage:.0f} %"
    return f"range over {launches} launches (holds the true median with {share} at most)"


def digits(value: float | None, count: int) -> str:
    """`count` significant digits without an exponent (`0.0236`, `1.42`, `4270`)."""
    if value is None or math.isnan(value):
        return ABSENT
    if value == 0:
        return "0"
    rounded = round(value, count - 1 - _magnitude(value))
    return f"{rounded:.{max(0, count - 1 - _magnitude(rounded))}f}"


def percent(share: float | None) -> str:
    """A share of 1 as a percentage with two digits, three above 100 %."""
    if share is None or math.isnan(share):
        return ABSENT
    return digits(100 * share, 2 if share < 1 else 3)


def thousands(value: float | None) -> str:
    """Three digits with k, M or G (`5.82M`)."""
    if value is None or math.isnan(value):
        return ABSENT
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * factor:
            return f"{digits(value / factor, 3)}{letter}"
    return digits(value, 3)


def flop_rate(tflop_s: float) -> str:
    """A rate in TFLOP/s, or GFLOP/s below 1: `796 TFLOP/s`, `15.1 GFLOP/s`."""
    if tflop_s < 1:
        return f"{digits(1e3 * tflop_s, 3)} GFLOP/s"
    return f"{digits(tflop_s, 3)} TFLOP/s"


def scientific(value: float | None) -> str:
    """Two digits and an exponent (`2.1e-03`); an exact zero stays `0`."""
    if value is None or math.isnan(value):
        return ABSENT
    return "0" if value == 0 else f"{value:.1e}"


def ratio(value: float | None) -> str:
    """A speed-up: two decimals below 10, then three digits."""
    if value is None or math.isnan(value):
        return ABSENT
    return f"{value:.2f}" if 0.1 <= value < 10 else digits(value, 3)
