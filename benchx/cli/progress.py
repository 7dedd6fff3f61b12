"""How far a run is, on stderr: a bar on a terminal, one line per record elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchx.cli.labels import counted
from benchx.core.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from benchx.cli.labels import Labels
    from benchx.core.point import Point
    from benchx.core.record import LaunchRecord
    from benchx.runner.progress import Advance, PlanSize, Progress

_BAR, _BESIDE_WORDS = 20, 50
"""Columns of the bar; of everything beside the words, with room to spare."""


def make_progress(console: Console, labels: Labels) -> Bar | Lines:
    """What suits the console."""
    return Bar(console, labels) if console.is_terminal else Lines(console, labels)


class Lines:
    """Plain lines, for logs and pipes."""

    def __init__(self, console: Console, labels: Labels) -> None:
        self._console, self._labels = console, labels

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def started(self, folder: Path, size: PlanSize) -> None:
        """See `runner.Progress`."""
        self.note(opening(folder, size))

    def phase(self, launch: int, name: str, points: Sequence[Point]) -> None:
        """Silent: a line per record is enough."""

    def finished(self, point: Point, record: LaunchRecord, advance: Advance) -> None:
        """See `runner.Progress`."""
        self.note(
            f"[{advance.done}/{advance.records}] launch {record.launch}: {self._labels.of(point)}: "
            f"{result_text(record)}{left_text(advance.left_s)}"
        )

    def note(self, text: str) -> None:
        """See `runner.Progress`."""
        self._console.print(text, soft_wrap=True)


class Bar:
    """One moving line with the time left; failures scroll by above it."""

    def __init__(self, console: Console, labels: Labels) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        # Room is left at the right, so that the terminal's own "^C" does not break the line.
        words = max(10, console.width - _BESIDE_WORDS)
        self._labels = labels
        self._told: set[tuple[str, Outcome]] = set()
        self._bar = RichProgress(
            BarColumn(bar_width=_BAR),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", max_width=words),
            ),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None, left="")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def started(self, folder: Path, size: PlanSize) -> None:
        """See `runner.Progress`."""
        self.note(opening(folder, size))
        self._bar.update(self._task, total=size.records, completed=size.kept)

    def phase(self, launch: int, name: str, points: Sequence[Point]) -> None:
        """See `runner.Progress`."""
        subject = self._labels.of(points[0]) if points else ""
        more = f" and {len(points) - 1} more" if len(points) > 1 else ""
        self._bar.update(self._task, description=f"launch {launch}: {name} {subject}{more}")

    def finished(self, point: Point, record: LaunchRecord, advance: Advance) -> None:
        """See `runner.Progress`."""
        left = left_text(advance.left_s).strip(" ,")
        self._bar.update(self._task, completed=advance.done, left=left)
        told = (point.point_id, record.outcome)
        if record.outcome.is_failure and told not in self._told:
            self._told.add(told)
            self.note(f"{self._labels.of(point)}: {result_text(record)}")

    def note(self, text: str) -> None:
        """See `runner.Progress`."""
        self._bar.console.print(text, soft_wrap=True)


def opening(folder: Path, size: PlanSize) -> str:
    """The first line of a run."""
    return f"{counted(size.points, 'point')} in {counted(size.launches, 'launch')} -> {folder}"


def result_text(record: LaunchRecord) -> str:
    """What became of a point in one launch."""
    if record.outcome is not Outcome.OK:
        return f"{record.outcome.value}: {record.reason}"
    time_ms = record.values.get("device_time_ms")
    return "ok" if time_ms is None else f"ok, {time_ms:.4g} ms"


def left_text(left_s: float | None) -> str:
    """`, 40 s left`, `, 3 min left`, or nothing while it can't be told."""
    if left_s is None or left_s < 1:
        return ""
    return f", {left_s:.0f} s left" if left_s < 100 else f", {left_s / 60:.0f} min left"
