"""Backends that misbehave as processes: the run goes on, each has its outcome and its reason."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchx.core.errors import ExitCode, RunFailed
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.runner import RunSummary
from benchx.runner.events import Ready, Sources
from benchx.runner.executor import Exited
from benchx.runner.local import LocalExecutor
from benchx.runner.spec import Group, LaunchSpec
from benchx.store import read_run

Write = Callable[..., Path]
Start = Callable[..., RunSummary]

BAD = {
    "hang": (Outcome.TIMEOUT, "timing did not end within 3 s"),
    "segfault": (Outcome.CRASHED, "the worker died of SIGSEGV during timing"),
    "killed": (Outcome.CRASHED, "the worker died of SIGKILL during timing"),
    "exits": (Outcome.CRASHED, "the worker exited with code 0 during timing"),
    "garbles": (Outcome.CRASHED, "something that is no event"),
    "last_words": (Outcome.CRASHED, "exited with code 3 during timing; it printed: i can't go on"),
    "holds_pipe": (Outcome.CRASHED, "the worker exited with code 3"),
}


def test_each_way_of_dying_has_its_outcome_and_the_run_goes_on(
    write_scenario: Write, fake_run: Start
) -> None:
    summary = fake_run(write_scenario(*BAD, "good", limit="3s"))
    rows = {row["backend"]: row for row in read_run(summary.path).rows}
    for backend, (outcome, reason) in BAD.items():
        assert rows[backend]["outcome"] == outcome.value, backend
        assert reason in rows[backend]["reason"]
        assert rows[backend]["device_time_ms_p50"] is None
    assert rows["good"]["outcome"] == "ok"
    assert rows["good"]["device_time_ms_p50"] == 1.0
    assert summary.exit_code is ExitCode.FAILED
    assert sum("new worker" in note for note in summary.notes) == len(BAD)


def test_what_a_backend_prints_goes_to_the_log_and_disturbs_nothing(
    write_scenario: Write, fake_run: Start
) -> None:
    summary = fake_run(write_scenario("noisy", "good"))
    assert summary.outcomes == {Outcome.OK: 2}
    assert b"garbage" in (summary.path / "logs" / "launch-0.log").read_bytes()


def test_a_backend_that_reads_stdin_finds_it_empty(write_scenario: Write, fake_run: Start) -> None:
    assert fake_run(write_scenario("reads")).outcomes == {Outcome.OK: 1}


def test_what_a_backend_has_started_dies_with_its_worker(
    write_scenario: Write, fake_run: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHILD_FILE", str(tmp_path / "child"))
    fake_run(write_scenario("family"))
    assert gone(int((tmp_path / "child").read_text()))


def gone(pid: int) -> bool:
    """Whether a process ends within a few seconds; a zombie counts as ended."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_worker_that_cannot_start_ends_the_run_with_what_it_said(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN_WORKER", "1")
    with pytest.raises(RunFailed, match=r"without measuring.*no such driver.*launch-0\.log"):
        fake_run(write_scenario("good"))


def test_a_spec_larger_than_a_pipe_reaches_the_worker(tmp_path: Path) -> None:
    points = [
        Point(kind="kernel", subject="fake", backend="good", params={"size": size})
        for size in range(2000)
    ]
    spec = LaunchSpec(
        run_id="r",
        launch=0,
        worker=0,
        groups=tuple(Group((point,)) for point in points),
        settings={0: {"setup_time_limit_s": 1.0}},
    )
    assert len(str(spec.to_json())) > 100_000
    worker = LocalExecutor("fake_worker").start(spec, tmp_path / "log")
    try:
        assert isinstance(worker.next(30), Sources)
        assert isinstance(worker.next(30), Ready)
    finally:
        worker.kill()
    left = worker.next(0)
    while not isinstance(left, Exited):  # what it had said before it was killed comes first
        assert left is not None
        left = worker.next(0)
