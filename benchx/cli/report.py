"""`benchx report`: tables and figures of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchx.cli.arguments import AsJson, OutDir
from benchx.cli.run_folders import named_run
from benchx.cli.terminal import print_json, stderr, stdout
from benchx.core.errors import UsageError


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, such as results/smoke-…")
    ],
    *,
    out: OutDir = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="BACKEND", help="Backend that speed-ups are relative to.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show and write the tables and figures of finished runs.

    CSV, Markdown, PNG and SVG go to --out, or else into the folder `report` of the run.
    """
    from benchx import reporting

    if out is None and len(runs) > 1:
        raise UsageError("a report of several runs needs a folder of its own", hint="--out DIR")
    for run in runs:
        named_run(run)
    console = None if as_json else stdout()
    written = reporting.report(runs, out or runs[0] / "report", baseline=baseline, console=console)
    if console is None:
        print_json({"report": [str(path) for path in written.files]})
    else:
        count = len(written.files)
        console.print(f"\nreport: {written.folder} ({count} files)", soft_wrap=True)
    for line in written.omissions:
        stderr().print(line)
