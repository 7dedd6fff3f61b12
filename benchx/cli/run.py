"""`benchx run`: measure a scenario, store it as it arrives, show the table, write the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchx.cli import plan
from benchx.cli.arguments import NEWEST, AsJson, OutDir, Overrides
from benchx.cli.run_folders import named_run
from benchx.cli.terminal import print_json, stderr, stdout
from benchx.core.errors import StoreError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from benchx.runner import RunSummary
    from benchx.scenario import Scenario

RESULTS = Path("results")
_LAUNCHES = "measure.launches"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be run: a scenario, anew or as the rest of an earlier run."""

    scenario: Scenario
    out_dir: Path
    resume: Path | None


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="A YAML file, or the name of a shipped scenario."),
    ] = None,
    *,
    out: OutDir = None,
    overrides: Overrides = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="[RUN]",
            help="Continue an unfinished run: this folder, or the newest one. "
            "With --set measure.launches=N: add launches to a run.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only.")] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Write no CSV, Markdown and figures.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Measure a scenario.

    The run is stored under results/ (or --out) as it goes; the table is printed, and CSV,
    Markdown and figures are written beside it. Exit code 4 if a point failed.
    """
    if resume is None and scenario is None:
        raise UsageError("missing argument 'SCENARIO'", hint="benchx list scenarios")
    if dry_run and resume is not None:
        raise UsageError(
            "--dry-run and --resume can't be combined",
            hint="leave out --resume to see the plan of a new run",
        )
    if dry_run and scenario is not None:
        plan.show(scenario, overrides or (), as_json=as_json)
        return 0
    request = _request(scenario, out or RESULTS, overrides or (), resume)
    summary = _measure(request, preload=not no_report)
    report = _report(summary.path, None if as_json else stdout(), write=not no_report)
    if as_json:
        print_json(_as_json(summary, report))
    else:
        _show_paths(summary, report)
    return int(summary.exit_code)


def _request(
    scenario: str | None, out_dir: Path, overrides: Sequence[str], resume: str | None
) -> Request:
    from benchx import scenario as scenarios

    run_folder = None if resume is None else _find(resume, out_dir, scenario)
    if scenario is not None:
        loaded = scenarios.load(scenario, overrides=overrides)
    elif all(text.partition("=")[0].strip().endswith(_LAUNCHES) for text in overrides):
        assert run_folder is not None
        loaded = _stored(run_folder, overrides)
    else:
        raise UsageError(
            "--set without a SCENARIO can't be combined with --resume: it would change the run",
            hint=f"only launches can be added to it: --set {_LAUNCHES}=N",
        )
    return Request(scenario=loaded, out_dir=out_dir, resume=run_folder)


def _find(resume: str, out_dir: Path, scenario: str | None) -> Path:
    """The run folder that `--resume` means."""
    from benchx import scenario as scenarios
    from benchx.runner.resume import newest_unfinished, require_run

    if resume == NEWEST:
        name = None if scenario is None else scenarios.load(scenario).name
        return _not_renamed(newest_unfinished(out_dir, name))
    if scenario is None and resume in scenarios.shipped() and not Path(resume).exists():
        raise UsageError(f"{resume!r} is no run folder", hint=f"benchx run {resume} --resume")
    path = Path(resume)
    return require_run(named_run(path if path.exists() else out_dir / resume))


def _not_renamed(run_folder: Path) -> Path:
    """The folder itself, unless its name says that somebody keeps it: a reference run, say.

    Raises:
        UsageError: It bears another name than its run; it is continued only when it is named.
    """
    from benchx.store import read_meta

    if read_meta(run_folder).run_id != run_folder.name:
        raise UsageError(
            f"the newest unfinished run, {run_folder}, was renamed; it is not resumed "
            "automatically",
            hint=f"to resume it: benchx run --resume {run_folder}",
        )
    return run_folder


def _stored(run_folder: Path, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario that an earlier run was started from, as stored with it, `--set` applied."""
    from benchx.scenario import Scenario
    from benchx.store import read_meta
    from benchx.store.meta import RUN_FILE

    source = run_folder / RUN_FILE
    return Scenario.from_json(read_meta(run_folder).resolved, source=source, overrides=overrides)


def _measure(request: Request, *, preload: bool) -> RunSummary:
    from benchx import reporting, runner
    from benchx.cli.labels import Labels
    from benchx.cli.progress import make_progress
    from benchx.cli.words import vocabulary
    from benchx.scenario import expand

    words = vocabulary()
    labels = Labels(expand(request.scenario, words))
    with make_progress(stderr(), labels) as progress:
        return runner.run(
            request.scenario,
            words,
            out_dir=request.out_dir,
            resume=request.resume,
            progress=progress,
            meanwhile=reporting.preload if preload else None,
        )


def _report(run_folder: Path, console: Console | None, *, write: bool) -> Sequence[Path]:
    """Show the table on the console, and write the report; returns its files."""
    from benchx import reporting
    from benchx.store import read_run

    if not write:
        if console is not None:
            reporting.print_run(read_run(run_folder), console)
        return ()
    try:
        return reporting.report([run_folder], run_folder / "report", console=console).files
    except StoreError as error:
        hint = f"the run itself is stored; benchx report {run_folder} --out DIR"
        raise StoreError(error.message, hint=hint) from error


def _show_paths(summary: RunSummary, report: Sequence[Path]) -> None:
    console = stdout()
    console.print(f"\nrun:    {summary.path}", soft_wrap=True)
    if report:
        console.print(f"report: {summary.path / 'report'} ({len(report)} files)", soft_wrap=True)
    failed = {o.value: n for o, n in summary.outcomes.items() if o.is_failure}
    if failed:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in failed.items())
        points = sum(summary.outcomes.values())
        stderr().print(f"{sum(failed.values())} of {points} points failed: {counts}")


def _as_json(summary: RunSummary, report: Sequence[Path]) -> dict[str, object]:
    return {
        "run": str(summary.path),
        "status": summary.status.value,
        "outcomes": {outcome.value: count for outcome, count in summary.outcomes.items()},
        "kept_records": summary.kept,
        "written_records": summary.written,
        "notes": list(summary.notes),
        "report": [str(path) for path in report],
        "exit_code": int(summary.exit_code),
    }
