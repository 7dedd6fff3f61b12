"""When enough samples of a point have been taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchx.stats.summary import median, median_interval

Stop = Literal["target_error", "max_time", "max_samples"]

CONFIDENCE = 0.95
"""Level of the interval that `target_error` bounds."""


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """Stop at the target error, at the time limit or at the most samples, whichever is first.

    `target_error` is reached when half the width of the 95 % interval of the median (binomial
    order statistics, `stats.summary.median_interval`) is at most `target_error` times the
    median and there are `min_samples` or more. Looking after every batch lowers its coverage a
    little (92 to 97 % of simulated independent samples instead of 95 %); figures are judged by
    launches, where that has no part.

    Attributes:
        target_error: Relative half-width asked for (0.005 is 0.5 %); 0 never stops early.
        max_time_s: Seconds this point may take, time limits before `min_samples`.
        min_samples: Fewest samples before `target_error` counts.
        max_samples: Most samples.
    """

    target_error: float = 0.005
    max_time_s: float = 15.0
    min_samples: int = 20
    max_samples: int = 1000

    def stop(self, samples_ms: Sequence[float], elapsed_s: float) -> Stop | None:
        """Why to stop now, or None to go on; one sample is always taken."""
        if not samples_ms:
            return None
        if self._is_precise(samples_ms):
            return "target_error"
        if len(samples_ms) >= self.max_samples:
            return "max_samples"
        return "max_time" if elapsed_s >= self.max_time_s else None

    def _is_precise(self, samples_ms: Sequence[float]) -> bool:
        if self.target_error <= 0 or len(samples_ms) < self.min_samples:
            return False
        interval = median_interval(samples_ms, CONFIDENCE)
        if interval is None:
            return False
        return interval.half_width <= self.target_error * median(samples_ms)
