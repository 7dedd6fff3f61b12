"""Whole runs with an engine that is started: it dies, benchx is killed; nothing lost, none left."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from benchx.core.outcome import Outcome
from benchx.store import Run, RunStatus, read_run
from benchx.store.requests import read_requests

FAKE = Path(__file__).parent / "fakes" / "vllm_serve.py"
TEXT = """\
schema: 1
name: started
kind: serving
engine:
  name: vllm
  model: ./model
  python: ["{python}", "{fake}", serve]
  ready_timeout: 30s
  env: {{FAKE_PIDS: "{pids}", FAKE_DIES_AFTER: "{dies}", FAKE_TOKEN_S: "{token_s}",
        FAKE_LINGERS_S: "{lingers_s}"}}
workload: {{dataset: random, input_len: 8, output_len: 4, requests: {requests}}}
axes: {{concurrency: [1, 2]}}
measure: {{launches: 1}}
"""

pytestmark = pytest.mark.slow

Begin = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Starts `benchx run` of a scenario whose engine is the fake one."""

    def start(
        *, dies: int = 0, lingers_s: float = 0, requests: int = 6, token_s: float = 0.01
    ) -> subprocess.Popen[bytes]:
        path = tmp_path / "s.yaml"
        pids = tmp_path / "pids"
        how = {"dies": dies, "lingers_s": lingers_s, "requests": requests, "token_s": token_s}
        path.write_text(TEXT.format(python=sys.executable, fake=FAKE, pids=pids, **how))
        command = [sys.executable, "-m", "benchx", "run", "--out", str(tmp_path / "out")]
        return subprocess.Popen([*command, "--no-report", str(path)])

    return start


def engines(tmp_path: Path) -> list[int]:
    """Those that were started and still run."""
    file = tmp_path / "pids"
    found = []
    for pid in map(int, file.read_text().split()) if file.exists() else ():
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def result(tmp_path: Path) -> Run:
    (folder,) = (tmp_path / "out").iterdir()
    return read_run(folder)


def wait_until(what: Callable[[], object], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not what() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert what()


def test_an_engine_that_ignores_sigterm_is_gone_after_the_run(begin: Begin, tmp_path: Path) -> None:
    assert begin().wait(120) == 0
    assert not engines(tmp_path)
    run = result(tmp_path)
    assert [record.outcome for record in run.records] == [Outcome.OK] * 2
    assert (tmp_path / "pids").read_text().count("\n") == 1  # one start served both points


@pytest.mark.parametrize("lingers_s", [0, 2])
def test_an_engine_that_dies_under_load_is_quoted_and_what_had_ended_is_kept(
    begin: Begin, tmp_path: Path, lingers_s: float
) -> None:
    begin(dies=5, lingers_s=lingers_s).wait(120)  # after readiness and warm-up
    run = result(tmp_path)
    assert [record.outcome for record in run.records] == [Outcome.CRASHED] * 2
    for record in run.records:
        assert "exited with code 3: RuntimeError: the device fell off the bus" in str(record.reason)
    rows = next(iter(read_requests(run.path).values()))
    outcomes = [row["outcome"] for row in rows]
    assert outcomes.count("ok") >= 1
    assert set(outcomes) == {"ok", "disconnected"}
    assert not engines(tmp_path)


def test_after_kill_9_of_benchx_its_engine_is_gone_within_seconds(
    begin: Begin, tmp_path: Path
) -> None:
    benchx = begin(requests=200, token_s=0.05)
    lines = (tmp_path / "out").glob

    def stored() -> int:
        return sum(len(file.read_bytes().splitlines()) for file in lines("*/requests/*.jsonl"))

    wait_until(lambda: stored() >= 3, 100)
    family = psutil.Process(benchx.pid).children(recursive=True)
    assert engines(tmp_path)
    benchx.kill()
    benchx.wait()
    wait_until(lambda: not engines(tmp_path), 6)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive
    run = result(tmp_path)
    assert run.status is RunStatus.PARTIAL
    (rows,) = read_requests(run.path).values()
    assert len(rows) >= 3
    assert {row["outcome"] for row in rows} == {"ok"}
