"""Raw requests of a load: nothing that was handed over is lost, however the process ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchx.core.errors import StoreError
from benchx.store.requests import RequestLog, read_requests

ROWS = [{"index": i, "outcome": "ok", "arrivals_ns": [1, 2], "usage": {"n": i}} for i in range(3)]


def test_a_finished_load_is_one_parquet_file(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, "p")
    for row in ROWS:
        log.append(row)
    assert log.finish() == tmp_path / "requests" / "p.parquet"
    found = read_requests(tmp_path)["p"]
    assert [row["index"] for row in found] == [0, 1, 2]
    assert found[1]["arrivals_ns"] == [1, 2]
    assert found[1]["usage"] == '{"n": 1}'
    assert [path.name for path in (tmp_path / "requests").iterdir()] == ["p.parquet"]


def test_an_abandoned_load_keeps_its_lines(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, "p")
    log.append(ROWS[0])
    log.abandon()
    assert read_requests(tmp_path) == {"p": [ROWS[0]]}


def test_a_load_without_requests_leaves_no_table(tmp_path: Path) -> None:
    RequestLog(tmp_path, "p").finish()
    assert read_requests(tmp_path) == {"p": []}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    RequestLog(tmp_path, "p").abandon()
    with pytest.raises(StoreError):
        RequestLog(tmp_path, "p")


def test_requests_written_a_second_ago_survive_kill_9(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from benchx.store.requests import RequestLog\n"
        "log = RequestLog(Path(sys.argv[1]), 'p'); log.append({'index': 7}); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    file = tmp_path / "requests" / "p.jsonl"
    deadline = time.monotonic() + 30
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert read_requests(tmp_path) == {"p": [{"index": 7}]}
