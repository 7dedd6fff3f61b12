"""The settings of a kernel part, as they cross the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchx.scenario import KernelPart


@dataclass(frozen=True, kw_only=True)
class KernelSettings:
    """How to measure; the fields mean what they mean in `scenario.schema`."""

    cache: str
    timer: str
    order: str
    target_error: float
    min_samples: int
    max_samples: int
    max_time_s: float
    setup_time_limit_s: float
    seed: int
    max_rms_ratio: float | None

    @classmethod
    def of(cls, part: KernelPart) -> KernelSettings:
        """Those of a scenario part."""
        measure = part.measure
        return cls(
            cache=measure.cache,
            timer=measure.timer,
            order=measure.order,
            target_error=measure.target_error,
            min_samples=measure.min_samples,
            max_samples=measure.max_samples,
            max_time_s=measure.max_time_s,
            setup_time_limit_s=measure.setup_time_limit_s,
            seed=measure.seed,
            max_rms_ratio=part.check.max_rms_ratio,
        )
