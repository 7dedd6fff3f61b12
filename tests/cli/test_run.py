"""`benchx run` hands a scenario to the runner, shows what came of it and fails if a point did."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchx import reporting, runner, store
from benchx.cli.arguments import with_resume_value
from benchx.cli.words import vocabulary
from benchx.core.errors import StoreError
from benchx.core.outcome import Outcome
from benchx.core.record import LaunchRecord
from benchx.reporting.document import Document, build_document
from benchx.runner import RunSummary
from benchx.runner.execution import _meta
from benchx.runner.plan import make_plan
from benchx.scenario import load
from benchx.store import Run, RunStatus, RunWriter, read_run

Command = Callable[..., Any]

SCENARIO = """\
schema: 1
name: tiny
title: Does it run?
kind: kernel
op: kda_prefill
backends: [recurrent, chunked]
fixed: {head_dim: 16, value_dim: 16, dtype: float32}
axes: {heads: [1], seqlens: [16]}
measure: {launches: 1, max_time: 0.05s, min_samples: 1, max_samples: 2}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def _unfinished(scenario: Path, out_dir: Path = Path("results")) -> Path:
    """A run folder with one of its two records."""
    loaded = load(scenario)
    plan = make_plan(loaded, vocabulary())
    with RunWriter.create(out_dir, _meta(loaded, plan)) as writer:
        writer.append(
            LaunchRecord(
                run_id=writer.meta.run_id, point_id=plan.entries[0].point.point_id, launch=0,
                outcome=Outcome.SKIPPED, reason="for the test", started_at="", ended_at="",
            )
        )  # fmt: skip
        return writer.path


class FakeRunner:
    """Stands in for `runner.run` and the report; keeps what it was asked for."""

    def __init__(self, outcomes: Mapping[Outcome, int]) -> None:
        self.outcomes = outcomes
        self.asked: dict[str, Any] = {}
        self.reported: list[Path] = []

    def run(self, scenario: Any, words: Any, **asked: Any) -> RunSummary:  # noqa: ANN401
        self.asked = {"scenario": scenario, **asked}
        return RunSummary(
            path=Path("results/tiny-1"), status=RunStatus.COMPLETE,
            outcomes=Counter(self.outcomes), kept=0, written=2, notes=(),
        )  # fmt: skip

    def report(
        self, runs: list[Path], folder: Path, *, console: Console | None
    ) -> reporting.ReportFiles:
        if console is not None:
            console.print("THE TABLE")
        self.reported.append(folder)
        return reporting.ReportFiles(folder=folder, files=(folder / "points.csv",), omissions=())


@pytest.fixture
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    made = FakeRunner(getattr(request, "param", {Outcome.OK: 2}))
    monkeypatch.setattr(runner, "run", made.run)
    monkeypatch.setattr(reporting, "report", made.report)
    monkeypatch.setattr(reporting, "print_run", lambda run, console: console.print("THE TABLE"))
    monkeypatch.setattr(store, "read_run", lambda path: path)
    return made


def test_the_table_and_the_paths_go_to_stdout(
    benchx: Command, scenario: Path, fake: FakeRunner
) -> None:
    result = benchx("run", "tiny.yaml")
    assert result.code == 0
    assert (
        result.out
        == "THE TABLE\n\nrun:    results/tiny-1\nreport: results/tiny-1/report (1 files)\n"
    )
    assert fake.asked["out_dir"] == Path("results")
    assert fake.reported == [Path("results/tiny-1/report")]


def test_out_set_and_no_report_are_honoured(
    benchx: Command, scenario: Path, fake: FakeRunner
) -> None:
    arguments = ["--out", "elsewhere", "--set", "axes.heads=[3]", "--no-report"]
    result = benchx("run", "tiny.yaml", *arguments)
    assert fake.asked["out_dir"] == Path("elsewhere")
    assert fake.asked["scenario"].parts[0].axes["heads"] == (3,)
    assert fake.reported == []
    assert result.out.startswith("THE TABLE\n")
    assert "report:" not in result.out


@pytest.mark.parametrize(
    ("fake", "code", "said"),
    [
        ({Outcome.OK: 1, Outcome.SKIPPED: 1, Outcome.UNSUPPORTED: 1}, 0, ""),
        ({Outcome.OK: 1, Outcome.WRONG: 2}, 4, "2 of 3 points failed: 2 wrong"),
        ({Outcome.OOM: 1, Outcome.TIMEOUT: 1}, 4, "2 of 2 points failed: 1 oom, 1 timeout"),
    ],
    indirect=["fake"],
)
def test_a_failed_point_is_counted_on_stderr_and_in_the_exit_code(
    benchx: Command, scenario: Path, fake: FakeRunner, code: int, said: str
) -> None:
    result = benchx("run", "tiny.yaml")
    assert result.code == code
    assert result.err.strip() == said


def test_json_is_the_only_thing_on_stdout(
    benchx: Command, scenario: Path, fake: FakeRunner
) -> None:
    summary = json.loads(benchx("run", "tiny.yaml", "--json").out)
    assert summary["outcomes"] == {"ok": 2}
    assert summary["exit_code"] == 0
    assert summary["report"] == ["results/tiny-1/report/points.csv"]


def test_table_and_files_come_of_one_reading_of_the_run(
    benchx: Command, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read, built = _unfinished(scenario), [], []

    def counted(path: Path) -> Run:
        read.append(path)
        return read_run(path)

    def documented(runs: Sequence[Run], **more: Any) -> Document:  # noqa: ANN401
        built.append(runs)
        return build_document(runs, **more)

    summary = RunSummary(
        path=folder, status=RunStatus.COMPLETE, outcomes=Counter({Outcome.SKIPPED: 1}),
        kept=0, written=1, notes=(),
    )  # fmt: skip
    monkeypatch.setattr(runner, "run", lambda *_, **__: summary)
    monkeypatch.setattr("benchx.runner.aggregate.read_run", counted)
    monkeypatch.setattr(store, "read_run", counted)
    monkeypatch.setattr("benchx.reporting.api.build_document", documented)
    result = benchx("run", "tiny.yaml")
    assert result.code == 0, result.err
    assert "for the test" in result.out
    assert (folder / "report" / "report.md").is_file()
    assert (len(read), len(built)) == (1, 1)


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        (["run", "--resume"], ["run", "--resume=newest"]),
        (["run", "x", "--resume", "--json"], ["run", "x", "--resume=newest", "--json"]),
        (["run", "--resume", "results/x"], ["run", "--resume", "results/x"]),
        (["run", "--resume=results/x"], ["run", "--resume=results/x"]),
        (["run", "x"], ["run", "x"]),
    ],
)
def test_resume_may_be_bare_or_name_a_run(given: list[str], understood: list[str]) -> None:
    assert with_resume_value(given) == understood


@pytest.mark.parametrize("arguments", [["--resume"], ["tiny.yaml", "--resume"]])
def test_a_bare_resume_continues_the_newest_unfinished_run(
    benchx: Command, scenario: Path, fake: FakeRunner, arguments: list[str]
) -> None:
    folder = _unfinished(scenario)
    assert benchx("run", *arguments).code == 0
    assert fake.asked["resume"] == folder
    assert fake.asked["scenario"].name == "tiny"


@pytest.mark.parametrize("arguments", [["--resume"], ["tiny.yaml", "--resume"]])
def test_a_bare_resume_leaves_a_renamed_run_alone_which_may_be_continued_by_name(
    benchx: Command, scenario: Path, fake: FakeRunner, arguments: list[str]
) -> None:
    kept = _unfinished(scenario).rename(Path("results/reference"))
    result = benchx("run", *arguments)
    assert result.code == 2
    assert "results/reference, was renamed" in result.err
    assert fake.asked == {}
    assert benchx("run", "--resume", str(kept)).code == 0
    assert fake.asked["resume"] == kept


def test_a_run_is_continued_by_path_or_by_name_without_its_scenario_file(
    benchx: Command, scenario: Path, fake: FakeRunner
) -> None:
    folder = _unfinished(scenario)
    scenario.unlink()
    for name in (str(folder), folder.name):
        assert benchx("run", "--resume", name).code == 0
        assert fake.asked["resume"] == folder
        assert fake.asked["scenario"].parts[0].op == "kda_prefill"


def test_a_run_cannot_be_changed_while_it_is_continued(
    benchx: Command, scenario: Path, fake: FakeRunner
) -> None:
    _unfinished(scenario)
    result = benchx("run", "--resume", "--set", "axes.heads=[2]")
    assert result.code == 2
    assert "--set without a SCENARIO can't be combined with --resume" in result.err
    assert fake.asked == {}


def test_launches_are_added_to_a_run_by_the_scenario_that_is_stored_with_it(
    benchx: Command, scenario: Path, fake: FakeRunner
) -> None:
    folder = _unfinished(scenario)
    scenario.unlink()
    arguments = ["--resume", str(folder), "--set", "measure.launches=7"]
    assert benchx("run", *arguments).code == 0
    assert fake.asked["resume"] == folder
    assert fake.asked["scenario"].parts[0].measure.launches == 7


def test_a_dry_run_of_a_resumed_run_is_refused_and_measures_nothing(
    benchx: Command, scenario: Path, fake: FakeRunner
) -> None:
    _unfinished(scenario)
    for arguments in (["--resume"], ["tiny.yaml", "--resume"]):
        assert benchx("run", *arguments, "--dry-run").code == 2
    assert fake.asked == {}


def test_a_report_that_cannot_be_written_says_that_the_run_is_safe(
    benchx: Command, scenario: Path, fake: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(runs: list[Path], folder: Path, *, console: Console) -> None:
        console.print("THE TABLE")
        raise StoreError(f"can't write a report into {folder}: No space left on device")

    monkeypatch.setattr(reporting, "report", refuse)
    result = benchx("run", "tiny.yaml")
    assert result.code == 4
    assert result.out == "THE TABLE\n"
    assert "the run itself is stored" in result.err


@pytest.mark.slow
def test_a_real_run_tells_its_progress_on_stderr_and_its_result_on_stdout(scenario: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchx", "run", "tiny.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    progress = done.stderr.splitlines()
    assert progress[0].startswith("2 points in 1 launch -> results/tiny-")
    assert [line.split("]")[0] for line in progress if line.startswith("[")] == ["[1/2", "[2/2"]
    assert "recurrent" in done.stdout
    assert "complete" in done.stdout
    folder = next(Path("results").iterdir())
    assert {path.name for path in (folder / "report").iterdir()} >= {"points.csv", "report.md"}


@pytest.mark.slow
def test_a_real_run_continued_from_a_stored_record_measures_only_the_rest(scenario: Path) -> None:
    folder = _unfinished(scenario)
    done = subprocess.run(
        [sys.executable, "-m", "benchx", "run", "--resume", "--json", "--no-report"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    summary = json.loads(done.stdout)
    assert summary["run"] == str(folder)
    assert (summary["kept_records"], summary["written_records"]) == (1, 1)
    assert summary["outcomes"] == {"skipped": 1, "ok": 1}
    assert done.returncode == 0
