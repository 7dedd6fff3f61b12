"""A serving run that is killed: no process stays, no finished request is lost, it can go on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchx.serving.groundtruth.process import GroundTruth
from benchx.serving.groundtruth.stream import Pace
from benchx.store import RunStatus, read_run
from benchx.store.requests import read_requests

TEXT = """\
schema: 1
name: killed
kind: serving
engine: {{name: endpoint, model: m, base_url: "{url}", token_ids: true}}
workload: {{dataset: random, input_len: 8, output_len: 4, requests: 20}}
axes: {{concurrency: [1]}}
measure: {{launches: 1}}
"""

pytestmark = pytest.mark.slow


def wait_until(what, limit_s: float) -> None:  # noqa: ANN001
    deadline = time.monotonic() + limit_s
    while not what() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert what()


def test_after_kill_9_nothing_runs_and_what_had_ended_is_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "benchx", "run", "--out", str(out), "--no-report"]

    def lines() -> int:
        return sum(len(file.read_bytes().splitlines()) for file in out.glob("*/requests/*.jsonl"))

    with GroundTruth(Pace(ttft_ms=300.0, token_ms=50.0)) as server:
        scenario = tmp_path / "s.yaml"
        scenario.write_text(TEXT.format(url=server.base_url))
        run = subprocess.Popen([*command, str(scenario)])
        wait_until(lambda: lines() >= 3, 100.0)
        family = psutil.Process(run.pid).children(recursive=True)
        assert any("benchx.serving.worker" in child.cmdline() for child in family)
        run.kill()
        run.wait()
        gone, alive = psutil.wait_procs(family, timeout=20)
        assert gone
        assert not alive
        (folder,) = out.iterdir()
        (rows,) = read_requests(folder).values()
        assert len(rows) >= 3
        assert {row["outcome"] for row in rows} == {"ok"}
        subprocess.run([*command, "--resume"], check=True)
    assert read_run(folder).status is RunStatus.COMPLETE
    assert sorted(map(len, read_requests(folder).values()))[-1] == 20
