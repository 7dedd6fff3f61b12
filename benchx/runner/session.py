"""The worker's side of a launch: what it knows, and its line to the parent."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.measure.cache import ColdCache
from benchx.measure.ceilings import ceilings
from benchx.runner.drift import DriftWatch
from benchx.runner.events import Ceilings, Control, Event, Phase, Recorded, encode
from benchx.runner.faults import Guard, poison_of
from benchx.runner.spec import LaunchSpec, Settings

CEILINGS_LIMIT_S = 300.0
"""Measuring the ceilings takes a second; a busy GPU takes longer."""


class Channel(Protocol):
    """Takes events to the parent."""

    def send(self, event: Event) -> None:
        """Hand over one event; it is on its way when this returns."""


class PipeChannel:
    """Events as lines on an inherited pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, event: Event) -> None:
        """See `Channel.send`; blocks while the parent is behind."""
        line = encode(event)
        while line:
            line = line[os.write(self._descriptor, line) :]


def now() -> str:
    """UTC, ISO 8601, whole seconds with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(kw_only=True)
class Session:
    """One worker process at work.

    Attributes:
        spec: What was asked for.
        device: Where it is measured.
        ceilings: Copy bandwidth and matrix rate of that device, as measured until now.
        drift: The control kernel of this process.
        poisoned: Why this process can't go on (a device context that only a new one repairs).
        recorded: Ids of the points that are done.
        ceilings_doubted: Whether they were measured again because a point beat one.
    """

    spec: LaunchSpec
    device: Device
    ceilings: Mapping[str, Any]
    channel: Channel
    poisoned: str | None = None
    recorded: set[str] = field(default_factory=set)
    ceilings_doubted: bool = False
    drift: DriftWatch = field(init=False)
    _cold_caches: dict[Device, ColdCache] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.drift = DriftWatch(self.device, lambda time_ms: self.channel.send(Control(time_ms)))

    def cold_cache(self, device: Device) -> ColdCache:
        """What empties a device's cache before a call; made once, as that is slow."""
        if device not in self._cold_caches:
            self._cold_caches[device] = ColdCache(device)
        return self._cold_caches[device]

    def doubt_ceilings(self, point: Point) -> None:
        """A point beat a ceiling, so that may be too low: measure again, once per process."""
        if self.ceilings_doubted:
            return
        self.ceilings_doubted = True
        self.phase("measuring ceilings", (point,), CEILINGS_LIMIT_S)
        with Guard() as guard:
            self.ceilings = asdict(ceilings(self.device, again=True))
            self.channel.send(Ceilings(self.ceilings))
        if guard.fault is not None:
            self.poisoned = poison_of(self.device)

    def ends_with(self, point: Point) -> bool:
        """Whether nothing is to be measured behind the group of a point."""
        return point in self.spec.groups[-1].points

    def settings(self, part: int) -> Settings:
        """How to measure the points of a scenario part."""
        return self.spec.settings[part]

    def phase(
        self, name: str, points: Sequence[Point], limit_s: float, shared_s: float | None = None
    ) -> None:
        """Say what begins now, who is to blame if it fails, and how long it may take."""
        ids = tuple(point.point_id for point in points)
        self.channel.send(Phase(name=name, points=ids, limit_s=limit_s, shared_s=shared_s))

    def record(
        self,
        point: Point,
        outcome: Outcome,
        *,
        started_at: str,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Report that a point is done.

        Args:
            point: Which one.
            outcome: What became of it.
            started_at: When work on it began (see `now`).
            reason: Why it is not ok.
            details: Further fields of `LaunchRecord`.
        """
        record = LaunchRecord(
            run_id=self.spec.run_id,
            point_id=point.point_id,
            launch=self.spec.launch,
            outcome=outcome,
            reason=reason,
            started_at=started_at,
            ended_at=now(),
            **(details or {}),
        )
        self.recorded.add(point.point_id)
        self.channel.send(Recorded(record))
