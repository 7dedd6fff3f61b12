"""`benchx report`: tables and figures of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchx.cli.arguments import OutDir
from benchx.cli.terminal import stderr
from benchx.core.errors import UsageError


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, such as results/smoke-…")
    ],
    *,
    out: OutDir = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="BACKEND", help="Whose speed counts as 1.")
    ] = None,
) -> None:
    """Write tables and figures of finished runs.

    CSV, Markdown, PNG and SVG go to --out, or else into the folder `report` of the run; the
    paths of the files are printed.
    """
    from benchx import reporting

    if out is None and len(runs) > 1:
        raise UsageError("a report of several runs needs a folder of its own", hint="--out DIR")
    written = reporting.report(runs, out or runs[0] / "report", baseline=baseline)
    for path in written.files:
        print(path)
    for line in written.omissions:
        stderr().print(line)
