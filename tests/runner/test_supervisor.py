"""What the supervisor makes of events, silence and exits; workers are scripts, not processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchx.core.errors import RunFailed
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.runner.events import Ceilings, Control, Ended, Event, Phase, Ready, Recorded, Sources
from benchx.runner.executor import Exited
from benchx.runner.interrupts import Interrupt, Interrupted
from benchx.runner.plan import Plan
from benchx.runner.progress import Silent
from benchx.runner.session import now
from benchx.runner.spec import LaunchSpec
from benchx.runner.supervisor import Supervisor, explain_exit, overrun
from benchx.store import PlanEntry, RunMeta, RunWriter

READY = Ready(device={"name": "fake", "count": 1}, environment={}, ceilings={})
POINTS = [
    Point(kind="kernel", subject="op", backend=name, params={"size": 1}) for name in ("a", "b", "c")
]
A, B, C = (point.point_id for point in POINTS)

Step = Event | Exited | None


class ScriptedExecutor:
    """Each start plays the next script; a script that is over reports nothing."""

    def __init__(self, *scripts: Sequence[Step], sources: Sources | None = None) -> None:
        self._scripts = iter(scripts)
        self._sources = sources or Sources.here()
        self.specs: list[LaunchSpec] = []
        self.kills = 0

    def start(self, spec: LaunchSpec, log: Path) -> ScriptedWorker:
        self.specs.append(spec)
        return ScriptedWorker(iter([self._sources, *next(self._scripts)]), self)


class ScriptedWorker:
    def __init__(self, script: Iterator[Step], executor: ScriptedExecutor) -> None:
        self._script, self._executor = script, executor

    def next(self, timeout_s: float) -> Step:
        return next(self._script, None)

    def kill(self) -> None:
        self._executor.kills += 1

    def log_tail(self) -> str:
        return "last | lines"


def ok(point_id: str, launch: int = 0) -> Recorded:
    return Recorded(
        LaunchRecord(
            run_id="r",
            point_id=point_id,
            launch=launch,
            outcome=Outcome.OK,
            started_at=now(),
            ended_at=now(),
            values={"device_time_ms": 1.0},
        )
    )


def timing(*ids: str, limit_s: float = 60.0) -> Phase:
    return Phase(name="timing", points=ids, limit_s=limit_s)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    meta = RunMeta(
        run_id="",
        scenario="s",
        source="s.yaml",
        resolved={},
        plan=tuple(PlanEntry(point, 1) for point in POINTS),
        seeds=(0,),
        command=(),
        started_at=now(),
        benchx_version="0",
    )
    with RunWriter.create(tmp_path, meta) as created:
        yield created


def supervise(
    writer: RunWriter,
    executor: ScriptedExecutor,
    interrupt: Interrupt | None = None,
    meanwhile: Sequence[Callable[[], None]] = (),
) -> dict[str, LaunchRecord]:
    plan = Plan(entries=writer.meta.plan, settings={0: {}}, seeds=(0,))
    Supervisor(
        plan=plan,
        writer=writer,
        executor=executor,
        progress=Silent(),
        interrupt=interrupt or Interrupt(),
        on_ready=lambda launch: None,
        on_record=lambda record: None,
        meanwhile=meanwhile,
    ).run_launch(0, POINTS)
    return {record.point_id: record for record in writer.records}


def test_a_worker_that_does_everything_is_started_once(writer: RunWriter) -> None:
    executor = ScriptedExecutor([READY, timing(A, B, C), ok(A), ok(B), ok(C), Ended("complete")])
    records = supervise(writer, executor)
    assert [record.outcome for record in records.values()] == 3 * [Outcome.OK]
    assert len(executor.specs) == 1


def test_the_point_in_flight_takes_the_blame_and_the_rest_get_a_new_worker(
    writer: RunWriter,
) -> None:
    executor = ScriptedExecutor(
        [READY, timing(A), ok(A), timing(B), Exited(code=-11)],
        [READY, timing(C), ok(C), Ended("complete")],
    )
    records = supervise(writer, executor)
    assert records[B].outcome is Outcome.CRASHED
    assert records[B].reason == (
        "the worker died of SIGSEGV during timing; it printed: last | lines"
    )
    assert [p.point_id for p in executor.specs[1].groups[0].points] == [C]
    assert executor.specs[1].worker == 1


def test_the_callers_imports_happen_once_after_the_first_worker_was_started(
    writer: RunWriter,
) -> None:
    executor = ScriptedExecutor(
        [READY, timing(A), ok(A), timing(B), Exited(code=-11)],
        [READY, timing(C), ok(C), Ended("complete")],
    )
    workers: list[int] = []
    supervise(writer, executor, meanwhile=[lambda: workers.append(len(executor.specs))])
    assert workers == [1]


def test_every_point_of_a_shared_phase_takes_the_blame(writer: RunWriter) -> None:
    shared = Phase(name="making inputs", points=(A, B, C), limit_s=60.0)
    records = supervise(writer, ScriptedExecutor([READY, shared, Exited(code=1)]))
    assert {record.outcome for record in records.values()} == {Outcome.CRASHED}


def test_silence_beyond_the_limit_is_a_timeout_that_names_the_phase(writer: RunWriter) -> None:
    executor = ScriptedExecutor(
        [READY, timing(A, limit_s=0.0)],
        [READY, timing(B, C), ok(B), ok(C), Ended("complete")],
    )
    records = supervise(writer, executor)
    assert records[A].outcome is Outcome.TIMEOUT
    assert records[A].reason == "timing did not end within 0 s; the worker was stopped"
    assert executor.kills >= 2


@pytest.mark.parametrize(
    ("limit_s", "shared_s", "told"),
    [
        (7200.0, None, "check did not end within 7200 s"),
        (299.9, 300.0, "check did not end within 300 s"),
        (0.125, 300.0, "check did not end within 0.125 s, all that the steps before it had left "
         "of 300 s"),
    ],
)  # fmt: skip
def test_an_overrun_tells_the_limit_that_the_scenario_set(
    limit_s: float, shared_s: float | None, told: str
) -> None:
    phase = Phase(name="check", points=(A,), limit_s=limit_s, shared_s=shared_s)
    assert overrun(phase) == told


def test_each_phase_starts_its_own_clock(writer: RunWriter) -> None:
    executor = ScriptedExecutor(
        [READY, timing(A, limit_s=0.0), timing(A, B, C), ok(A), ok(B), ok(C), Ended("complete")]
    )
    assert {r.outcome for r in supervise(writer, executor).values()} == {Outcome.OK}


def test_a_worker_that_leaves_early_is_followed_by_another(writer: RunWriter) -> None:
    executor = ScriptedExecutor(
        [READY, ok(A), Ended("the device context is unusable")],
        [READY, ok(B), ok(C), Ended("complete")],
    )
    supervise(writer, executor)
    assert [info.ended for info in writer.launches] == [
        "the device context is unusable",
        "complete",
    ]


def test_a_worker_that_measures_nothing_ends_the_run_instead_of_looping(
    writer: RunWriter,
) -> None:
    with pytest.raises(RunFailed, match=r"without measuring anything.*exited with code 1"):
        supervise(writer, ScriptedExecutor([Exited(code=1)]))


def test_a_stop_kills_the_worker_and_notes_it(writer: RunWriter) -> None:
    interrupt = Interrupt()
    executor = ScriptedExecutor([READY, ok(A), None])
    interrupt_after(executor, interrupt)
    with pytest.raises(Interrupted, match="SIGTERM"):
        supervise(writer, executor, interrupt)
    assert executor.kills == 1
    assert writer.launches[0].ended == "interrupted"
    assert [record.point_id for record in writer.records] == [A]


def interrupt_after(executor: ScriptedExecutor, interrupt: Interrupt) -> None:
    real_start = executor.start

    def start(spec: LaunchSpec, log: Path) -> ScriptedWorker:
        worker = real_start(spec, log)
        real_next = worker.next

        def step(timeout_s: float) -> Step:
            event = real_next(timeout_s)
            if event is None:
                interrupt.by = "SIGTERM"
            return event

        worker.next = step  # type: ignore[method-assign]
        return worker

    executor.start = start  # type: ignore[method-assign]


def test_control_times_give_the_drift_of_the_worker(writer: RunWriter) -> None:
    steps = [READY, Control(2.0), ok(A), ok(B), ok(C), Control(3.0), Ended("complete")]
    supervise(writer, ScriptedExecutor(steps))
    info = writer.launches[0]
    assert info.control_ms == (2.0, 3.0)
    assert info.drift == pytest.approx(0.5)


def test_ceilings_that_were_measured_again_are_those_of_the_launch(writer: RunWriter) -> None:
    raised = Ceilings({"copy_gb_s": 2.0})
    supervise(writer, ScriptedExecutor([READY, ok(A), raised, ok(B), ok(C), Ended("complete")]))
    assert writer.launches[0].ceilings == {"copy_gb_s": 2.0}


def test_a_worker_that_ends_is_known_from_the_moment_it_is_ready(writer: RunWriter) -> None:
    seen: list[int] = []
    executor = ScriptedExecutor([READY, ok(A), ok(B), ok(C), Ended("complete")])
    real = writer.append
    writer.append = lambda record: (seen.append(len(writer.launches)), real(record))[1]  # type: ignore[method-assign]
    supervise(writer, executor)
    assert seen == [1, 1, 1]


@pytest.mark.parametrize(
    ("exited", "outcome", "text"),
    [
        (Exited(code=-9, oom_kills=1), Outcome.OOM, "killed it because memory ran out"),
        (Exited(code=-9, oom_kills=0), Outcome.CRASHED, "SIGKILL during timing, not because"),
        (Exited(code=-9), Outcome.CRASHED, "perhaps because memory ran out"),
        (Exited(code=-6, oom_kills=1), Outcome.CRASHED, "SIGABRT"),
        (Exited(code=-62), Outcome.CRASHED, "signal 62"),
        (Exited(code=0), Outcome.CRASHED, "code 0"),
        (Exited(code=-9, garbled="x"), Outcome.CRASHED, "no event: 'x'"),
    ],
)
def test_an_exit_is_explained(exited: Exited, outcome: Outcome, text: str) -> None:
    found, reason = explain_exit(exited, "timing")
    assert found is outcome
    assert text in reason


def test_a_record_of_a_foreign_point_is_refused(writer: RunWriter) -> None:
    foreign = replace(ok(A).record, point_id="elsewhere")
    with pytest.raises(RunFailed, match="was not asked for"):
        supervise(writer, ScriptedExecutor([READY, Recorded(foreign)]))


def test_a_worker_with_other_sources_stops_the_run_and_both_places_are_named(
    writer: RunWriter,
) -> None:
    here = Sources.here()
    other = Sources(
        digests={**here.digests, "benchx": "0123"}, folders={**here.folders, "benchx": "/other"}
    )
    place = re.escape(here.folders["benchx"])
    told = rf"another benchx than this process: /other \(0123\), here {place} \(.*install the same"
    with pytest.raises(RunFailed, match=told):
        supervise(writer, ScriptedExecutor([READY], sources=other))
    assert not writer.launches


def test_sources_that_change_while_a_run_is_under_way_stop_it(writer: RunWriter) -> None:
    here = Sources.here()
    changed = replace(here, digests={**here.digests, "benchx_kernels": "0123"})
    with pytest.raises(RunFailed, match=r"sources of benchx_kernels in .* have changed since"):
        supervise(writer, ScriptedExecutor([READY], sources=changed))


def test_a_worker_that_does_not_say_what_it_runs_is_refused(writer: RunWriter) -> None:
    silent = ScriptedExecutor([])
    silent.start = lambda spec, log: ScriptedWorker(iter([READY]), silent)  # type: ignore[method-assign]
    with pytest.raises(RunFailed, match="did not say which code it runs"):
        supervise(writer, silent)
