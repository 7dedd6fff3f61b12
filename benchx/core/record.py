"""What one launch measured of one point: the line that is written ahead and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchx.core.outcome import Outcome

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Check:
    """How far the outputs were from the fp64 reference.

    Attributes:
        rms_ratio: Output name -> rms(output - reference) / rms(reference).
        bound: Largest ratio that passes.
        method: Which reference: `fp64 recurrence`, `fp64 chunked, heads 0+31+63 of 96`, ...
    """

    rms_ratio: Mapping[str, float]
    bound: float
    method: str

    def __post_init__(self) -> None:
        if not self.rms_ratio:
            raise ValueError("a check without an output says nothing")

    @property
    def worst(self) -> float:
        """The largest ratio."""
        return max(self.rms_ratio.values())


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one call does, from the operator's formulas (see its docstring for sources).

    `tokens` are those computed; cached ones are excluded. `leaves_kv` is true for a prefill:
    only then is KV throughput defined.
    """

    flops: float
    min_bytes: int
    tokens: int
    kv_cache_bytes: int
    kv_state_bytes: int
    leaves_kv: bool


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How the samples were taken.

    Attributes:
        timer: `events`, `graph` or `cpu`.
        cache: `cold` or `warm`.
        stop: Why sampling ended: `target_error`, `max_time` or `max_samples`.
        samples: Samples kept.
        notes: What a reader of the figures must know (`host_bound`, `sw_power_cap`, ...).
    """

    timer: str
    cache: str
    stop: str
    samples: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """One point in one launch.

    Attributes:
        values: Metric id -> value of this launch (medians of its samples); empty unless outcome
            is OK.
        samples: Metric id -> raw samples in the metric's unit; stored apart from the record line.
        telemetry: Clocks, power, temperature and throttle reasons during the samples.
        provenance: Package, version, file hash and the backend that really dispatched.
    """

    run_id: str
    point_id: str
    launch: int
    outcome: Outcome
    reason: str | None = None
    started_at: str
    ended_at: str
    values: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    check: Check | None = None
    work: Work | None = None
    timing: Timing | None = None
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.outcome is Outcome.OK:
            if not self.values:
                raise ValueError(f"point {self.point_id}: outcome ok without a value")
        elif self.values or self.samples:
            raise ValueError(f"point {self.point_id}: outcome {self.outcome} can't carry figures")
        elif not self.reason:
            raise ValueError(f"point {self.point_id}: outcome {self.outcome} needs a reason")

    def to_json(self) -> dict[str, Any]:
        """Plain data, samples included; `store.shape.restored_record` makes an equal one of it."""
        return asdict(self) | {"outcome": self.outcome.value}
