"""One launch at a time: workers, their time limits, and what to record when one dies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from benchx.core.errors import RunFailed
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.runner.events import Ceilings, Control, Ended, Event, Phase, Ready, Recorded, Sources
from benchx.runner.executor import Executor, Exited, Worker
from benchx.runner.interrupts import Interrupt, Interrupted
from benchx.runner.plan import Plan, group_points
from benchx.runner.progress import Progress
from benchx.runner.replicates import check_replicate, check_same_code
from benchx.runner.session import now
from benchx.runner.spec import LaunchSpec
from benchx.store import LaunchInfo, RunWriter

START_LIMIT_S = 300.0
"""Importing torch from a cold network file system takes minutes; hanging takes longer."""

_POLL_S = 0.2
_LEAVE_S = 5.0


@dataclass
class _Watch:
    """One worker under way.

    Attributes:
        left: Points without a record, by id.
        phase: What the worker is doing.
        began_at: When the phase began (for records).
        deadline_s: Monotonic time at which it counts as hanging.
        code: Which code it runs; None until it has said so.
        end: How it ended; None while it works.
    """

    launch: int
    left: dict[str, Point]
    phase: Phase
    began_at: str
    deadline_s: float
    code: Sources | None = None
    info: LaunchInfo | None = None
    end: str | None = None
    control_ms: list[float] = field(default_factory=list)

    def enter(self, phase: Phase) -> None:
        self.phase, self.began_at = phase, now()
        self.deadline_s = time.monotonic() + phase.limit_s


class Supervisor:
    """Runs launches on an executor and writes what they yield.

    Args:
        plan: What is measured and how.
        writer: Where records go.
        executor: Where workers run.
        progress: Told of phases, and of workers that had to be replaced.
        interrupt: Looked at several times a second.
        on_ready: Called with the launch when a worker stands on the run's own kind of device; until
            then nothing is written but its log.
        on_record: Called after each record was written.
        plugins: Modules that workers import first.
        meanwhile: Called once each, while the first worker starts.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        writer: RunWriter,
        executor: Executor,
        progress: Progress,
        interrupt: Interrupt,
        on_ready: Callable[[int], None],
        on_record: Callable[[LaunchRecord], None],
        plugins: Sequence[str] = (),
        meanwhile: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._plan, self._writer, self._executor = plan, writer, executor
        self._progress, self._interrupt = progress, interrupt
        self._tell_ready, self._on_record = on_ready, on_record
        self._plugins, self._meanwhile = tuple(plugins), list(meanwhile)
        self._code = Sources.here()
        self._next_worker = 1 + max((info.worker for info in writer.launches), default=-1)

    def run_launch(self, launch: int, points: Sequence[Point]) -> None:
        """Measure the points, replacing the worker whenever one dies.

        Raises:
            RunFailed: A worker died without a point to blame (it could not even start), or runs
                other code than this process.
            NotComparable: It would not be a replicate of the launches before it.
            Interrupted: The run was asked to stop.
            StoreError: A record could not be written.
        """
        left = {point.point_id: point for point in points}
        while left:
            before = len(left)
            ended = self._run_worker(launch, left)
            if len(left) == before:
                raise RunFailed(
                    f"launch {launch}: a worker ended without measuring anything: {ended}",
                    hint=f"see {self._writer.log_path(launch)}",
                )
            if left:
                self._progress.note(
                    f"launch {launch}: new worker for {len(left)} more points ({ended})"
                )

    def _run_worker(self, launch: int, left: dict[str, Point]) -> str:
        """Watch one worker to its end; what it recorded is gone from `left`."""
        spec = LaunchSpec(
            run_id=self._writer.meta.run_id,
            launch=launch,
            worker=self._next_worker,
            groups=group_points(left.values()),
            settings=self._plan.settings,
            plugins=self._plugins,
            folder=str(self._writer.path.resolve()),
        )
        self._next_worker += 1
        start = Phase(name="start", points=(), limit_s=START_LIMIT_S)
        watch = _Watch(launch, left, start, now(), time.monotonic() + START_LIMIT_S)
        worker = self._executor.start(spec, self._writer.log_path(launch))
        try:
            while self._meanwhile:
                self._meanwhile.pop(0)()
            while watch.end is None:
                self._step(worker, watch, spec)
        except Interrupted:
            watch.end = "interrupted"
            raise
        finally:
            worker.kill()
            self._close(watch)
        return watch.end

    def _step(self, worker: Worker, watch: _Watch, spec: LaunchSpec) -> None:
        if self._interrupt.by is not None:
            raise Interrupted(f"interrupted by {self._interrupt.by}", by=self._interrupt.by)
        left_s = watch.deadline_s - time.monotonic()
        event = worker.next(min(_POLL_S, max(left_s, 0.0)))
        if isinstance(event, Exited):
            self._on_exit(event, worker, watch)
        elif event is not None:
            self._on_event(event, worker, watch, spec)
        elif left_s <= 0:
            self._on_overrun(worker, watch)

    def _on_event(self, event: Event, worker: Worker, watch: _Watch, spec: LaunchSpec) -> None:
        if isinstance(event, Phase):
            watch.enter(event)
            points = [watch.left[name] for name in event.points if name in watch.left]
            self._progress.phase(watch.launch, event.name, points)
        elif isinstance(event, Recorded):
            self._write(event.record, watch)
        elif isinstance(event, Control):
            watch.control_ms.append(event.time_ms)
        elif isinstance(event, Ceilings) and watch.info is not None:
            watch.info = replace(watch.info, ceilings=event.ceilings)
        elif isinstance(event, Sources):
            check_same_code(event, self._code)
            watch.code = event
        elif isinstance(event, Ready):
            self._on_ready(event, watch, spec)
        elif isinstance(event, Ended):
            with suppress(RunFailed):  # it may hang while it unloads a driver; it is done anyway
                worker.next(_LEAVE_S)
            watch.end = event.reason

    def _on_ready(self, ready: Ready, watch: _Watch, spec: LaunchSpec) -> None:
        if watch.code is None:
            raise RunFailed(f"launch {watch.launch}: the worker did not say which code it runs")
        check_replicate(ready, self._writer.launches)
        watch.info = LaunchInfo(
            launch=spec.launch,
            worker=spec.worker,
            started_at=now(),
            device=ready.device,
            environment=ready.environment,
            ceilings=ready.ceilings,
        )
        self._writer.append_launch(watch.info)
        self._tell_ready(watch.launch)

    def _close(self, watch: _Watch) -> None:
        if watch.info is None:
            return
        times = tuple(watch.control_ms)
        info = replace(
            watch.info,
            control_ms=times,
            drift=times[-1] / times[0] - 1 if len(times) > 1 else None,
            ended_at=now(),
            ended=watch.end or "the run stopped",
        )
        self._writer.append_launch(info)

    def _on_overrun(self, worker: Worker, watch: _Watch) -> None:
        worker.kill()
        reason = f"{overrun(watch.phase)}; the worker was stopped"
        self._blame(Outcome.TIMEOUT, reason, worker, watch)

    def _on_exit(self, exited: Exited, worker: Worker, watch: _Watch) -> None:
        outcome, reason = explain_exit(exited, watch.phase.name)
        tail = worker.log_tail()
        self._blame(outcome, f"{reason}; it printed: {tail}" if tail else reason, worker, watch)

    def _blame(self, outcome: Outcome, reason: str, worker: Worker, watch: _Watch) -> None:
        """Record the failure for every point of the phase; the others get a new worker."""
        for point_id in watch.phase.points:
            if point_id in watch.left:
                self._write(self._failure(point_id, outcome, reason, watch), watch)
        watch.end = reason

    def _failure(self, point_id: str, outcome: Outcome, reason: str, watch: _Watch) -> LaunchRecord:
        return LaunchRecord(
            run_id=self._writer.meta.run_id,
            point_id=point_id,
            launch=watch.launch,
            outcome=outcome,
            reason=reason,
            started_at=watch.began_at,
            ended_at=now(),
        )

    def _write(self, record: LaunchRecord, watch: _Watch) -> None:
        if watch.left.pop(record.point_id, None) is None:
            raise RunFailed(f"a worker recorded point {record.point_id}, which was not asked for")
        self._writer.append(record)
        self._on_record(record)


def overrun(phase: Phase) -> str:
    """How a phase went beyond its limit; where others share it, their share is told."""
    text = f"{phase.name} did not end within {_seconds(phase.limit_s)}"
    if phase.shared_s is None or phase.limit_s > 0.99 * phase.shared_s:
        return text
    return f"{text}, all that the steps before it had left of {_seconds(phase.shared_s)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def explain_exit(exited: Exited, phase: str) -> tuple[Outcome, str]:
    """Outcome and reason for a worker that was gone in a phase, though it had work left."""
    if exited.garbled is not None:
        what = f"in {phase} the worker sent something that is no event: {exited.garbled!r}"
        return Outcome.CRASHED, what
    if exited.code >= 0:
        return Outcome.CRASHED, f"the worker exited with code {exited.code} during {phase}"
    try:
        name = signal.Signals(-exited.code).name
    except ValueError:
        name = f"signal {-exited.code}"
    text = f"the worker died of {name} during {phase}"
    if name != "SIGKILL":
        return Outcome.CRASHED, text
    if exited.oom_kills:
        return Outcome.OOM, f"{text}: the kernel killed it because memory ran out"
    told = exited.oom_kills is not None
    return Outcome.CRASHED, f"{text}, {'not' if told else 'perhaps'} because memory ran out"
