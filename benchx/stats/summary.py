"""Order statistics of timing samples: what may be said of them, and with which support.

Timing samples are skewed and bounded below, so everything here is distribution-free. Functions
take any sequence of finite numbers and never sort in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = Sequence[float] | npt.NDArray[np.float64]

SAMPLES_BEYOND = 5
"""A percentile is stated only when at least this many samples are expected beyond it."""

MIN_LAUNCHES = 3
"""Fewer launches say nothing of the spread between launches."""


class Interval(NamedTuple):
    """A closed interval in the unit of the samples it came from."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of its length."""
        return (self.high - self.low) / 2


def finite_array(samples: Numbers) -> npt.NDArray[np.float64]:
    """The samples as fp64; raises ValueError when there is none or one is NaN or infinite."""
    values = np.asarray(samples, dtype=np.float64).reshape(-1)
    if not values.size:
        raise ValueError("no samples")
    if not np.isfinite(values).all():
        raise ValueError("samples hold NaN or infinity")
    return values


def median(samples: Numbers) -> float:
    """The median: the mean of the two middle samples when their number is even."""
    return float(np.median(finite_array(samples)))


def percentile_or_none(
    samples: Numbers, q: float, *, support: int = SAMPLES_BEYOND
) -> float | None:
    """The `q`-th percentile (0 < q < 100), or None when too few samples lie beyond it.

    The expected number of samples beyond the percentile, `n * min(q, 100 - q) / 100`, must
    reach `support`: 5 means 10 samples for p50, 100 for p95, 500 for p99. Linear interpolation
    between order statistics (Hyndman and Fan, type 7).
    """
    if not 0 < q < 100:
        raise ValueError(f"a percentile lies between 0 and 100, got {q}")
    if len(samples) * min(q, 100 - q) < support * 100:
        return None
    return float(np.percentile(finite_array(samples), q))


def median_interval(samples: Numbers, confidence: float = 0.95) -> Interval | None:
    """Confidence interval of the median from order statistics; None when there are too few.

    The interval from the j-th smallest to the j-th largest sample, with the largest j whose
    `median_coverage` reaches `confidence`: the tightest symmetric one, whatever the distribution.
    Six samples are the fewest that give 95 %. It assumes independent samples, so among the samples
    of one launch it speaks of that launch only: launches are the replicates.

    Raises:
        ValueError: A sample is NaN or infinite, or confidence is not within (0, 1).
    """
    rank = _lower_rank(len(samples), confidence)
    return None if rank is None else _between_ranks(samples, rank)


def launch_interval(per_launch_values: Numbers, confidence: float = 0.95) -> Interval | None:
    """Interval of the median over launches; None for fewer than three.

    Where there are launches enough (six for 95 %) it is their `median_interval`. Fewer can't
    support that level, so the interval is their range, which covers the median with a probability
    of `median_coverage(n)` only: 75 % for three launches, 94 % for five.

    Args:
        per_launch_values: One number per launch (say, the median of its samples), any unit.
        confidence: Two-sided level that six launches and more are held to.

    Raises:
        ValueError: A value is NaN or infinite, or confidence is not within (0, 1).
    """
    count = len(per_launch_values)
    if count < MIN_LAUNCHES:
        return None
    return _between_ranks(per_launch_values, _lower_rank(count, confidence) or 1)


def median_coverage(n: int, rank: int = 1) -> float:
    """Probability that the `rank`-th smallest to the `rank`-th largest of n hold the median.

    With `B ~ Binomial(n, 1/2)` samples below the true median it is `1 - 2 P(B < rank)` for
    independent samples of any continuous distribution (David and Nagaraja, Order Statistics, 7.1).
    Rank 1 is the range, which nothing that stays between the samples can surpass.

    Raises:
        ValueError: Unless 1 <= rank <= n / 2.
    """
    if not 1 <= rank <= n // 2:
        raise ValueError(f"of {n} samples the ranks are 1 to {n // 2}, got {rank}")
    return 1 - 2 * float(_probability_below(n)[rank - 1])


def _between_ranks(samples: Numbers, rank: int) -> Interval:
    ordered = np.sort(finite_array(samples))
    return Interval(float(ordered[rank - 1]), float(ordered[-rank]))


@lru_cache(maxsize=4096)
def _lower_rank(n: int, confidence: float) -> int | None:
    """The largest j >= 1 with `P(B < j) <= (1 - confidence) / 2`; None when there is none."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, got {confidence}")
    if n < 2:
        return None
    rank = int(np.searchsorted(_probability_below(n), (1 - confidence) / 2, side="right"))
    return rank if rank >= 1 else None


def _probability_below(n: int) -> npt.NDArray[np.float64]:
    """`P(B < j)` for `B ~ Binomial(n, 1/2)` and j from 1 to n // 2."""
    k = np.arange(1, n // 2 + 1)
    log_pmf = np.concatenate(([0.0], np.cumsum(np.log(n - k + 1) - np.log(k)))) - n * math.log(2)
    return np.cumsum(np.exp(log_pmf))[:-1]  # P(B < j) ends at P(B = j - 1)


def geometric_mean(values: Numbers) -> float:
    """`exp(mean(log(x)))`; raises ValueError unless all values are positive."""
    array = finite_array(values)
    if (array <= 0).any():
        raise ValueError("a geometric mean needs positive values")
    return float(np.exp(np.log(array).mean()))


def relative_difference(value: float, base: float) -> float:
    """`value / base - 1`; raises ValueError for a base of 0."""
    if base == 0:
        raise ValueError("a relative difference needs a base other than 0")
    return value / base - 1
