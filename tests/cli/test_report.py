"""`benchx report` shows the tables of a run and writes them with their figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchx.cli.app import BROKEN_PIPE

RUN = Path(__file__).parents[2] / "results" / "h200-mla-prefill"
"""A run that is part of the repository."""

Command = Callable[..., Any]


def test_the_tables_are_shown_and_the_folder_of_the_files_is_named(
    benchx: Command, tmp_path: Path
) -> None:
    result = benchx("report", str(RUN), "--out", str(tmp_path))
    assert result.code == 0
    assert "MLA prefill" in result.out
    assert f"report: {tmp_path} (" in result.out.splitlines()[-1]
    assert (tmp_path / "report.md").is_file()


def test_a_script_gets_the_files_and_nothing_else(benchx: Command, tmp_path: Path) -> None:
    result = benchx("report", str(RUN), "--out", str(tmp_path), "--json")
    files = json.loads(result.out)["report"]
    assert {Path(file).name for file in files} >= {"points.csv", "report.md"}
    assert all(Path(file).is_file() for file in files)


def test_files_are_written_though_the_reader_of_the_tables_has_gone(
    unread: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    code, complaints = unread("report", str(RUN), "--out", str(tmp_path))
    assert (code, complaints) == (BROKEN_PIPE, "")
    assert {"points.csv", "report.md", "figures"} <= {path.name for path in tmp_path.iterdir()}


def test_a_folder_of_runs_is_answered_with_the_runs_in_it(benchx: Command, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    result = benchx("report", str(tmp_path))
    assert result.code == 2
    assert "is not a run folder" in result.err
    assert "hint: runs in it: a, b, c and 1 more" in result.err


def test_a_misspelt_run_is_answered_with_the_one_that_may_be_meant(benchx: Command) -> None:
    result = benchx("report", f"{RUN}l")
    assert result.code == 2
    assert f"hint: did you mean {RUN}?" in result.err
