"""What a metric is, and the registry that holds them all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from benchx.core.registry import Registry

Level = Literal["kernel", "model", "serving"]

KERNEL_AND_MODEL: tuple[Level, ...] = ("kernel", "model")
SERVING: tuple[Level, ...] = ("serving",)
EVERY_LEVEL: tuple[Level, ...] = ("kernel", "model", "serving")

STATISTICS = ("mean", "p50", "p90", "p95", "p99", "ci_low", "ci_high")
"""What a column may say of a metric's values; the ends are those of the interval of `p50`."""


class Direction(StrEnum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Role(StrEnum):
    """What a change of the metric means, so that one fact is judged once.

    `primary`: a fact of its own, to be judged. `derived`: it follows from other metrics and from
    what the point fixes (FLOPs, bytes, tokens), so it changes with them and is not judged again.
    `diagnostic`: it explains a change, or tells of the client, the cost or the conditions.
    """

    PRIMARY = "primary"
    DERIVED = "derived"
    DIAGNOSTIC = "diagnostic"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A quantity that benchx reports.

    Attributes:
        id: Column name; ends in its unit (`device_time_ms`).
        unit: Unit as printed.
        direction: Which way is better. It also says which tail `_p90`, `_p95` and `_p99` are, the
            bad one: the value that so many per cent don't exceed (lower is better), or reach or
            exceed (higher is better).
        role: Whether a change is judged, see `Role`.
        derived_from: Ids of the metrics that a derived one follows from; empty for others.
        primary_at: Levels at which a derived one stands for itself, since what it is derived from
            exists at other levels only.
        formula: How it follows from what was measured.
        levels: Where it is defined.
        denominator: What a throughput is counted per ("gpu", "request"), or None.
        label: Heading for people.

    Raises:
        ValueError: When role and `derived_from` contradict each other.
    """

    id: str
    unit: str
    direction: Direction
    role: Role
    formula: str
    levels: tuple[Level, ...]
    label: str
    derived_from: tuple[str, ...] = ()
    primary_at: tuple[Level, ...] = ()
    denominator: str | None = None

    def __post_init__(self) -> None:
        if (self.role is Role.DERIVED) != bool(self.derived_from):
            raise ValueError(
                f"metric {self.id}: derived metrics, and only they, name their sources"
            )
        if self.primary_at and self.role is not Role.DERIVED:
            raise ValueError(f"metric {self.id}: only a derived metric is primary at some levels")

    def role_at(self, level: Level) -> Role:
        """Its role among the metrics of one level."""
        return Role.PRIMARY if level in self.primary_at else self.role

    def column(self, statistic: str) -> str:
        """The column of one statistic: `ttft_ms_p50`.

        Raises:
            ValueError: When there is no such statistic.
        """
        if statistic not in STATISTICS:
            raise ValueError(f"{statistic!r} is no statistic; known: {', '.join(STATISTICS)}")
        return f"{self.id}_{statistic}"


METRICS: Registry[Metric] = Registry("metric", group="benchx.metrics")


def define(
    *,
    id: str,
    unit: str,
    direction: Direction,
    role: Role,
    formula: str,
    levels: tuple[Level, ...],
    label: str,
    derived_from: tuple[str, ...] = (),
    primary_at: tuple[Level, ...] = (),
    denominator: str | None = None,
) -> Metric:
    """Register a metric under its id; the arguments are the attributes of `Metric`.

    Raises:
        BenchxError: The id is taken.
    """
    metric = Metric(
        id=id,
        unit=unit,
        direction=direction,
        role=role,
        formula=formula,
        levels=levels,
        label=label,
        derived_from=derived_from,
        primary_at=primary_at,
        denominator=denominator,
    )
    return METRICS.add(id, metric)
