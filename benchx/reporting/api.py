"""What the command line calls: print one run, or write a report of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchx.core.errors import StoreError
from benchx.reporting import console as _console
from benchx.reporting import csv_file as _csv
from benchx.reporting import markdown as _markdown
from benchx.reporting import png as _png
from benchx.reporting.document import Document, build_document
from benchx.reporting.figures import plan_figures
from benchx.reporting.header import header_of
from benchx.reporting.sink import SINKS, Destination, Sink
from benchx.runner.aggregate import load_run
from benchx.store import Run, read_run

if TYPE_CHECKING:
    from rich.console import Console

FILE_SINKS = (_csv.CsvSink.name, _png.PngSink.name, _markdown.MarkdownSink.name)
"""The sinks a report uses when none are named, in the order in which they write."""


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """What a report wrote.

    Attributes:
        folder: Where everything is.
        files: In order of writing.
        omissions: One line per figure that had nothing to show.
    """

    folder: Path
    files: tuple[Path, ...]
    omissions: tuple[str, ...]


def report(
    run_paths: Sequence[Path],
    out_dir: Path,
    *,
    baseline: str | None = None,
    sinks: Sequence[str] = FILE_SINKS,
    console: Console | None = None,
) -> ReportFiles:
    """Write points.csv, figures/ and report.md of finished or partial runs.

    Args:
        run_paths: Run folders.
        out_dir: Made if needed; files of an earlier report in it are replaced.
        baseline: Backend whose speed counts as 1; None chooses per operator.
        sinks: Names of registered sinks.
        console: Also prints the tables here, before anything is drawn, which takes seconds. The
            files are written all the same where its reader goes away meanwhile (`| head`).

    Raises:
        StoreError: When a run can't be read or the folder can't be written.
        UsageError: When a sink or the baseline is unknown.
        BrokenPipeError, SystemExit: After writing, where the reader of the console has gone.
    """
    chosen = [SINKS.get(name) for name in sinks]
    document = build_document([load_run(path) for path in run_paths], baseline=baseline)
    gone: BrokenPipeError | SystemExit | None = None
    if console is not None:
        try:
            _print(document, console)
        except (BrokenPipeError, SystemExit) as error:  # newer versions of Rich leave by the latter
            gone = error
    files = _write(document, out_dir, chosen)
    if gone is not None:
        raise gone
    lists = [plan_figures(section, document.styles) for section in document.sections]
    omissions = tuple(line for figures in lists for line in figures.omissions)
    return ReportFiles(folder=out_dir, files=files, omissions=omissions)


def _write(document: Document, out_dir: Path, sinks: Sequence[Sink]) -> tuple[Path, ...]:
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        destination = Destination(folder=out_dir)
        return tuple(path for sink in sinks for path in sink.write(document, destination))
    except OSError as error:
        raise StoreError(f"can't write a report into {out_dir}: {error.strerror}") from error


def preload() -> None:
    """Import what `report` and `print_run` need: seconds that need not come when a user waits."""
    for name in ("pandas", "jinja2", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        import_module(name)


def print_run(run: Run, console: Console, *, baseline: str | None = None) -> None:
    """Print header, tables, footnotes and mean speed-ups of one run.

    Raises:
        UsageError: When the baseline is unknown.
    """
    _print(build_document([run], baseline=baseline), console)


def source_lines(run_paths: Sequence[Path]) -> tuple[str, ...]:
    """Run id, device, versions and date of each run, once: the footer of figures made from them.

    Raises:
        StoreError: When a run can't be read.
    """
    return tuple(header_of(read_run(path)).source_line() for path in dict.fromkeys(run_paths))


def _print(document: Document, console: Console) -> None:
    SINKS.get(_console.ConsoleSink.name).write(document, Destination(console=console))
