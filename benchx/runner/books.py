"""The books of a run: what is left, what was carried over, how long it may still take."""

from __future__ import annotations

import time
from dataclasses import replace

from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.runner.aggregate import derive_rows
from benchx.runner.plan import Plan
from benchx.runner.progress import Advance, PlanSize, Progress
from benchx.runner.session import now
from benchx.store import RunWriter, read_run


class Books:
    """What is left to do, and who must be told.

    Attributes:
        kept: Records that were there before this process began.
    """

    def __init__(self, plan: Plan, writer: RunWriter, progress: Progress) -> None:
        self._plan, self._writer, self._progress = plan, writer, progress
        self._points = writer.meta.points()
        self.kept = self._done = len(writer.finished())
        self._records = writer.meta.pairs()
        self._began_s = time.monotonic()
        self._measured = 0

    def start(self) -> None:
        """Say what there is to do."""
        size = PlanSize(
            points=len(self._plan.entries),
            launches=self._plan.launches,
            records=self._records,
            kept=self.kept,
        )
        self._progress.started(self._writer.path, size)
        for note in self._writer.notes:
            self._progress.note(note)
        if self.kept:
            self._progress.note(f"{self.kept} of {size.records} measurements are there already")

    @property
    def added(self) -> int:
        """Records that this process added."""
        return len(self._writer.finished()) - self.kept

    def is_done(self, launch: int) -> bool:
        """Whether every point has a record in a launch."""
        return not self._unrecorded(launch)

    def left(self, launch: int) -> list[Point]:
        """Points to measure in a launch: without a record, and not to be carried over."""
        failed = self._failed_before(launch)
        return [point for point in self._unrecorded(launch) if point.point_id not in failed]

    def carry_over(self, launch: int) -> None:
        """Record without running what failed in an earlier launch.

        A point carries figures only if it is ok in every launch, so another try can't help it,
        and a hang would cost its time limit once more.
        """
        failed = self._failed_before(launch)
        for point in self._unrecorded(launch):
            if point.point_id in failed:
                first = failed[point.point_id]
                reason = f"not run again, launch {first.launch} was: {first.reason}"
                time_now = now()
                carried = replace(
                    first, launch=launch, reason=reason, started_at=time_now, ended_at=time_now
                )
                self._writer.append(carried)
                self._tell(carried)

    def _unrecorded(self, launch: int) -> list[Point]:
        finished = self._writer.finished()
        points = self._plan.points_of(launch)
        return [point for point in points if (point.point_id, launch) not in finished]

    def _failed_before(self, launch: int) -> dict[str, LaunchRecord]:
        """Point -> its first failure in an earlier launch."""
        failed: dict[str, LaunchRecord] = {}
        for record in self._writer.records:
            if record.outcome is not Outcome.OK and record.launch < launch:
                failed.setdefault(record.point_id, record)
        return failed

    def on_record(self, record: LaunchRecord) -> None:
        """Count a record that was measured."""
        self._measured += 1
        self._tell(record)

    def _tell(self, record: LaunchRecord) -> None:
        self._done += 1
        left_s = None
        if self._measured:
            per_record_s = (time.monotonic() - self._began_s) / self._measured
            left_s = per_record_s * (self._records - self._done)
        advance = Advance(self._done, self._records, left_s)
        self._progress.finished(self._points[record.point_id], record, advance)

    def finish_launch(self, launch: int) -> None:
        """Merge samples, bring points.parquet up to date."""
        self._writer.finish_launch(launch)
        self.write_points()

    def close_launches(self) -> None:
        """The same for a run that stops, or was stopped, in the middle of any launch."""
        for launch in range(self._plan.launches):
            self._writer.finish_launch(launch)
        self.write_points()

    def write_points(self) -> None:
        """Derive points.parquet from all records until now."""
        self._writer.write_points(derive_rows(read_run(self._writer.path)))
