"""What a worker is asked to do, as plain data that can cross a wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchx.core.point import Point
from benchx.store.shape import restored

Settings = Mapping[str, Any]
"""How to measure, as the level of a part wrote it down; JSON-ready."""


@dataclass(frozen=True)
class Group:
    """Points measured together: at kernel level those that share their inputs."""

    points: tuple[Point, ...]

    @property
    def part(self) -> int:
        """Index of the scenario part that all of them belong to."""
        return self.points[0].part

    @property
    def kind(self) -> str:
        """Level of all of them."""
        return self.points[0].kind


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """The rest of one launch, for one worker process.

    Attributes:
        run_id: Name of the run.
        launch: Pass over the plan, from 0.
        worker: Ordinal of the worker process in the run.
        groups: What to measure, in this order.
        settings: Index of a scenario part -> its settings.
        plugins: Modules to import first; they register operators and backends.
        folder: The run folder, for levels that store samples and logs while they measure; None
            where a worker can't reach it.
    """

    run_id: str
    launch: int
    worker: int
    groups: tuple[Group, ...]
    settings: Mapping[int, Settings]
    plugins: tuple[str, ...] = ()
    folder: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` restores an equal spec."""
        return {
            "run_id": self.run_id,
            "launch": self.launch,
            "worker": self.worker,
            "groups": [[point.to_json() for point in group.points] for group in self.groups],
            "settings": {str(part): dict(value) for part, value in self.settings.items()},
            "plugins": list(self.plugins),
            "folder": self.folder,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaunchSpec:
        """Restore what `to_json` wrote."""
        return cls(
            run_id=data["run_id"],
            launch=data["launch"],
            worker=data["worker"],
            groups=tuple(
                Group(tuple(restored(point, Point) for point in points))
                for points in data["groups"]
            ),
            settings={int(part): value for part, value in data["settings"].items()},
            plugins=tuple(data["plugins"]),
            folder=data.get("folder"),
        )
