"""Order statistics of timing samples: what may be said of them, and with which support.

Timing samples are skewed and bounded below, so everything here is distribution-free. Functions
take any sequence of finite numbers and never sort in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

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

    With `B ~ Binomial(n, 1/2)` samples below the true median, the open interval between the
    j-th smallest and the j-th largest covers it with probability `1 - 2 P(B < j)`, whatever the
    (continuous) distribution; j is the largest for which that reaches `confidence` (David and
    Nagaraja, Order Statistics, 7.1). Six samples are the fewest that give 95 %. It assumes
    independent samples, so it speaks of this launch only: launches are the replicates.
    """
    rank = _lower_rank(len(samples), confidence)
    if rank is None:
        return None
    ordered = np.sort(finite_array(samples))
    return Interval(float(ordered[rank - 1]), float(ordered[-rank]))


@lru_cache(maxsize=4096)
def _lower_rank(n: int, confidence: float) -> int | None:
    """The largest j >= 1 with `P(B < j) <= (1 - confidence) / 2`; None when there is none."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, got {confidence}")
    if n < 2:
        return None
    k = np.arange(1, n // 2 + 1)
    log_pmf = np.concatenate(([0.0], np.cumsum(np.log(n - k + 1) - np.log(k)))) - n * math.log(2)
    below = np.cumsum(np.exp(log_pmf))  # below[j - 1] = P(B < j)
    rank = int(np.searchsorted(below, (1 - confidence) / 2, side="right"))
    return rank if rank >= 1 else None


def bootstrap_interval(
    per_launch_values: Numbers,
    seed: int,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    statistic: Literal["median", "mean"] = "median",
) -> Interval | None:
    """Percentile bootstrap over launches; None for fewer than three.

    One value per launch (say, the median of its samples) goes in. The plain percentile form is
    used because bias correction (BCa) is unstable below about ten launches. With n launches the
    interval can't leave [min, max]; for the median of three it is exactly [min, max], whose
    coverage is 75 % and not `confidence` (in general at most `1 - 2**(1 - n)`): read it as the
    range seen, and run more launches for a sharper claim.

    Args:
        per_launch_values: One number per launch, any unit.
        seed: Equal seeds give equal intervals, also when the launches are reordered.
        confidence: Nominal two-sided level.
        resamples: Bootstrap replicates.
        statistic: What is resampled.

    Raises:
        ValueError: A value is NaN or infinite, or confidence is not within (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, got {confidence}")
    if len(per_launch_values) < MIN_LAUNCHES:
        return None
    values = np.sort(finite_array(per_launch_values))
    drawn = np.random.default_rng(seed).integers(0, values.size, size=(resamples, values.size))
    resampled = values[drawn]
    replicates = resampled.mean(axis=1) if statistic == "mean" else np.median(resampled, axis=1)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(replicates, [tail, 100 - tail])
    return Interval(float(low), float(high))


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
