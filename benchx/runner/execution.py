"""`run`: from a scenario to a run folder with everything that could be measured."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import benchx
from benchx.core.errors import BenchxError, ExitCode, NotComparable, StoreError
from benchx.core.outcome import Outcome
from benchx.core.sources import check_one_checkout
from benchx.runner.books import Books
from benchx.runner.executor import Executor
from benchx.runner.interrupts import Interrupted, catching_interrupts
from benchx.runner.local import LocalExecutor
from benchx.runner.plan import Plan, make_plan
from benchx.runner.progress import Noting, Progress, Silent
from benchx.runner.resume import extension_of, newest_unfinished, resumed_plan
from benchx.runner.session import now
from benchx.runner.supervisor import Supervisor
from benchx.scenario import Scenario, Vocabulary
from benchx.store import RunMeta, RunStatus, RunWriter, read_meta, read_run
from benchx.store.samples import load_writer

NEWEST: Literal["newest"] = "newest"
"""`resume=NEWEST` continues the newest unfinished run of the scenario."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a run came to.

    Attributes:
        path: The run folder.
        outcomes: Outcome -> number of points.
        kept: Records that were there before (a resumed run); none of them was measured again.
        written: Records that this process added.
        notes: What a reader should know: torn lines cut off, workers replaced.
    """

    path: Path
    status: RunStatus
    outcomes: Mapping[Outcome, int]
    kept: int
    written: int
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """FAILED when a point that should have run did not, or the run is not complete."""
        failures = any(outcome.is_failure for outcome in self.outcomes)
        incomplete = self.status is not RunStatus.COMPLETE
        return ExitCode.FAILED if failures or incomplete else ExitCode.OK


def run(
    scenario: Scenario,
    vocabulary: Vocabulary,
    *,
    out_dir: Path,
    resume: Path | Literal["newest"] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    plugins: Sequence[str] = (),
    meanwhile: Callable[[], None] | None = None,
) -> RunSummary:
    """Measure a scenario; every record is on the disk before the next point begins.

    Args:
        scenario: What to measure.
        vocabulary: What the scenario may say of operators.
        out_dir: Where the run folder is made, or looked for.
        resume: A run folder to continue, or `NEWEST`; None starts a new run. A scenario that
            differs from the run's own in nothing but more launches adds these to it.
        progress: Told of everything that happens.
        executor: Where launches happen; processes of this machine by default.
        plugins: Modules that workers import first; they may register operators and backends.
        meanwhile: Called once, while the first worker starts, which takes seconds: the time for
            imports of the caller's own that would disturb measuring or be waited for at the end.

    Raises:
        ScenarioError: The scenario asks for something that does not exist.
        UsageError: There is nothing to resume, or its scenario has changed; or benchx and its
            kernels are of two checkouts.
        StoreError: The run folder can't be written.
        NotComparable: The run to continue was measured on another device or under other
            conditions; it is left as it was.
        RunFailed: Workers can't start; as `Interrupted`: the run was asked to stop. What was
            measured until then is kept, and the hint says how to continue.
    """
    check_one_checkout()
    writer, plan = _open(scenario, make_plan(scenario, vocabulary), out_dir, resume)
    with writer, catching_interrupts() as interrupt:
        notes = Noting(progress or Silent())
        books = Books(plan, writer, notes)
        supervisor = Supervisor(
            plan=plan,
            writer=writer,
            executor=executor or LocalExecutor(),
            progress=notes,
            interrupt=interrupt,
            on_ready=books.carry_over,
            on_record=books.on_record,
            plugins=plugins,
            meanwhile=[load_writer, *([meanwhile] if meanwhile else [])],
        )
        books.start()
        try:
            _measure(plan, supervisor, books)
        except BenchxError as error:
            raise _with_way_on(error, writer) from error
        return _summary(writer.path, books.kept, notes.notes)


def _measure(plan: Plan, supervisor: Supervisor, books: Books) -> None:
    """Every launch that is not done; one that stops early has its books closed all the same."""
    try:
        for launch in range(plan.launches):
            if not books.is_done(launch):
                supervisor.run_launch(launch, books.left(launch))
                books.carry_over(launch)  # where no worker was needed
                books.finish_launch(launch)
        if books.kept:  # a kill may have left launches that are done without this
            books.close_launches()
    except BenchxError as error:
        is_refused = isinstance(error, NotComparable) and not books.added
        if not is_refused:  # else it stays as it was
            with suppress(StoreError):
                books.close_launches()
        raise


def _open(
    scenario: Scenario, plan: Plan, out_dir: Path, resume: Path | Literal["newest"] | None
) -> tuple[RunWriter, Plan]:
    """The run folder, and the plan in the order in which it was begun."""
    if resume is None:
        return RunWriter.create(out_dir, _meta(scenario, plan)), plan
    path = newest_unfinished(out_dir, scenario.name) if resume == NEWEST else Path(resume)
    meta = read_meta(path)
    extension = extension_of(meta, scenario, _command())
    meta = meta if extension is None else meta.extended(extension)
    plan = resumed_plan(meta, scenario, plan, path)
    writer = RunWriter.resume(path)
    if extension is not None:
        writer.extend(extension)
    return writer, plan


def _command() -> tuple[str, ...]:
    """The command line; file names only, since folders of this machine are nobody's business."""
    program, *arguments = sys.argv or [""]
    started = Path(program)  # `python -m benchx` starts the package's __main__.py
    name = started.parent.name if started.name == "__main__.py" else started.name
    return (name, *arguments)


def _meta(scenario: Scenario, plan: Plan) -> RunMeta:
    """What was asked for."""
    return RunMeta(
        run_id="",
        scenario=scenario.name,
        source=scenario.source.name,
        resolved=scenario.to_json(),
        plan=plan.entries,
        seeds=plan.seeds,
        command=_command(),
        started_at=now(),
        benchx_version=benchx.__version__,
    )


def _with_way_on(error: BenchxError, writer: RunWriter) -> BenchxError:
    """The same error with the command that continues this very run, where one does."""
    way_on = f"benchx run --resume {writer.path}"
    if isinstance(error, Interrupted):
        done, records = len(writer.finished()), writer.meta.pairs()
        return Interrupted(
            f"{error.message} after {done} of {records} measurements, which are kept",
            by=error.by,
            hint=f"continue with: {way_on}",
        )
    if isinstance(error, StoreError):
        first = f"{error.hint}; then" if error.hint else "when that is mended"
        return StoreError(error.message, hint=f"{first}: {way_on}")
    return error


def _summary(path: Path, kept: int, notes: Sequence[str]) -> RunSummary:
    run = read_run(path)
    return RunSummary(
        path=path,
        status=run.status,
        outcomes=Counter(Outcome(row["outcome"]) for row in run.rows),
        kept=kept,
        written=len(run.records) - kept,
        notes=tuple(notes),
    )
