"""Whole reports as files; `BENCHX_REGEN_GOLDEN=1 pytest tests/reporting` rewrites them."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchx.reporting import print_run
from benchx.reporting.csv_file import CsvSink
from benchx.reporting.document import build_document
from benchx.reporting.markdown import markdown
from benchx.reporting.sink import Destination
from benchx.store import Run

GOLDEN = Path(__file__).parent.parent / "golden"


def check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("BENCHX_REGEN_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_markdown_report_is_as_agreed(prefill_run: Run) -> None:
    check("report.md", markdown(build_document([prefill_run])))


def test_the_markdown_report_of_two_runs_is_as_agreed(prefill_run: Run, decode_run: Run) -> None:
    check("report-two-runs.md", markdown(build_document([prefill_run, decode_run])))


def test_the_csv_is_as_agreed(prefill_run: Run, tmp_path: Path) -> None:
    (path,) = CsvSink().write(build_document([prefill_run]), Destination(folder=tmp_path))
    check("points.csv", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_terminal_shows_what_is_agreed(prefill_run: Run, width: int) -> None:
    out = StringIO()
    print_run(prefill_run, Console(file=out, width=width, color_system=None, highlight=False))
    check(f"console-{width}.txt", out.getvalue())


def test_the_markdown_report_of_serving_points_is_as_agreed(serving_run: Run) -> None:
    check("report-serving.md", markdown(build_document([serving_run])))


@pytest.mark.parametrize("width", [80, 160])
def test_the_terminal_shows_what_is_agreed_of_serving_points(serving_run: Run, width: int) -> None:
    out = StringIO()
    print_run(serving_run, Console(file=out, width=width, color_system=None, highlight=False))
    check(f"console-serving-{width}.txt", out.getvalue())
