from __future__ import annotations

from collections.abc import Callable

import pytest

from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.store import PlanEntry, RunMeta

TIME = "2026-01-02T03:04:05+00:00"
POINTS = tuple(
    Point(kind="kernel", subject="copy", backend=backend, params={"heads": heads})
    for heads in (1, 2)
    for backend in ("plain", "clever")
)


@pytest.fixture
def meta() -> RunMeta:
    """Two points of two backends, in two launches."""
    return RunMeta(
        run_id="unnamed",
        scenario="copying",
        source="copying.yaml",
        resolved={"name": "copying"},
        plan=tuple(PlanEntry(point, 2) for point in POINTS),
        seeds=(0,),
        command=("benchx", "run", "copying"),
        started_at=TIME,
        benchx_version="0",
    )


@pytest.fixture
def record() -> Callable[..., LaunchRecord]:
    """A record of the n-th point, ok unless an outcome is given."""

    def build(point: int = 0, launch: int = 0, **fields: object) -> LaunchRecord:
        base: dict[str, object] = {
            "run_id": "unnamed",
            "point_id": POINTS[point].point_id,
            "launch": launch,
            "outcome": Outcome.OK,
            "started_at": TIME,
            "ended_at": TIME,
        }
        figures = {"values": {"device_time_ms": 1.5}, "samples": {"device_time_ms": (1.0, 2.0)}}
        if "outcome" not in fields:
            base |= figures
        return LaunchRecord(**(base | fields))  # type: ignore[arg-type]

    return build
