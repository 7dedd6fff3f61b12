"""What a run tells about its progress; the command line draws it, tests collect it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchx.core.point import Point
from benchx.core.record import LaunchRecord


@dataclass(frozen=True, kw_only=True)
class PlanSize:
    """How much there is to do.

    Attributes:
        points: Points of the plan.
        launches: Most launches of any point.
        records: Records of the complete run: one per point and launch.
        kept: Those that were there already (a resumed run).
    """

    points: int
    launches: int
    records: int
    kept: int


@dataclass(frozen=True)
class Advance:
    """Where the run stands.

    Attributes:
        done: Records written until now, kept ones included.
        records: Records of the complete run.
        left_s: Seconds left, from what records took until now; None before the first.
    """

    done: int
    records: int
    left_s: float | None


class Progress(Protocol):
    """Callbacks of a run, all from its own thread."""

    def started(self, folder: Path, size: PlanSize) -> None:
        """The run folder stands."""

    def phase(self, launch: int, name: str, points: Sequence[Point]) -> None:
        """Something begins: `timing` of one point, `making inputs` of several, ..."""

    def finished(self, point: Point, record: LaunchRecord, advance: Advance) -> None:
        """A record was written."""

    def note(self, text: str) -> None:
        """Something a reader should know: a worker was replaced, a torn line was cut off."""


class Silent:
    """Tells nobody."""

    def started(self, folder: Path, size: PlanSize) -> None:
        """See `Progress`."""

    def phase(self, launch: int, name: str, points: Sequence[Point]) -> None:
        """See `Progress`."""

    def finished(self, point: Point, record: LaunchRecord, advance: Advance) -> None:
        """See `Progress`."""

    def note(self, text: str) -> None:
        """See `Progress`."""


class Noting:
    """Hands everything on and keeps the notes, for the summary."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner
        self.notes: list[str] = []

    def started(self, folder: Path, size: PlanSize) -> None:
        """See `Progress`."""
        self._inner.started(folder, size)

    def phase(self, launch: int, name: str, points: Sequence[Point]) -> None:
        """See `Progress`."""
        self._inner.phase(launch, name, points)

    def finished(self, point: Point, record: LaunchRecord, advance: Advance) -> None:
        """See `Progress`."""
        self._inner.finished(point, record, advance)

    def note(self, text: str) -> None:
        """See `Progress`."""
        self.notes.append(text)
        self._inner.note(text)
