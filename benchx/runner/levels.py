"""The levels that benchx measures at: each is one file that implements `Level`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from benchx.core.device import Device
from benchx.core.point import Point
from benchx.core.registry import Registry
from benchx.ops.base import Unavailable
from benchx.runner.session import Session
from benchx.runner.spec import Group, Settings


class Level(Protocol):
    """How points of one kind are planned (in the parent) and measured (in a worker)."""

    def settings(self, part: Any) -> dict[str, Any]:  # noqa: ANN401 - each level has its own part
        """What a worker must know of a scenario part, as plain data.

        Raises:
            UsageError: The part can't be measured at all; the message begins with the key that is
                to blame (`engine.args: ...`).
        """

    def groups(self, points: Sequence[Point]) -> tuple[Group, ...]:
        """Points of this level, in plan order, as they are measured together."""

    def unavailable(self, point: Point, settings: Settings, device: Device) -> Unavailable | None:
        """Why a point will not run on a device, or None."""

    def most_seconds(self, settings: Settings) -> float:
        """Most seconds that timing one point takes in one launch, set-up not counted."""

    def measure(self, group: Group, session: Session) -> None:
        """Measure a group and record every point of it through the session."""


LEVELS: Registry[Level] = Registry("level", group="benchx.levels")
