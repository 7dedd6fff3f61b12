"""A real run: real workers, real torch on the CPU, and a backend that dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchx.core.errors import ExitCode
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.runner import Advance, RunSummary, Silent, run
from benchx.scenario import Vocabulary, load
from benchx.store import RunStatus, read_meta, read_run

TEXT = """\
schema: 1
name: doubling
title: Who can double?
kind: kernel
op: doubling
backends: [good, wrong, segfaults, prints, absent]
measure:
  launches: 1
  cache: warm
  min_samples: 6
  max_samples: 20
  max_time: 0.05s
  setup_time_limit: 60s
"""


class Listener(Silent):
    def __init__(self) -> None:
        self.advances: list[Advance] = []

    def finished(self, point: Point, record: LaunchRecord, advance: Advance) -> None:
        self.advances.append(advance)


def test_a_run_with_good_and_bad_backends_ends_with_a_row_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bad_backends  # noqa: F401 - registers, for the words of the scenario

    from benchx.ops.vocabulary import kernel_words

    cached = tmp_path / "cache"
    monkeypatch.setenv("BENCHX_CACHE_DIR", str(cached))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "s.yaml").write_text(TEXT)
    listener = Listener()
    summary = run(
        load(tmp_path / "s.yaml"),
        Vocabulary(ops=kernel_words()),
        out_dir=tmp_path / "out",
        progress=listener,
        plugins=["bad_backends"],
    )
    found = read_run(summary.path)
    rows = {row["backend"]: row for row in found.rows}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "good": "ok",
        "wrong": "wrong",
        "segfaults": "crashed",
        "prints": "ok",
        "absent": "skipped",
    }
    assert "SIGSEGV during first calls" in rows["segfaults"]["reason"]
    assert rows["good"]["device_time_ms_p50"] > 0
    assert rows["good"]["version"] == ["1.2"]
    assert rows["wrong"]["device_time_ms_p50"] is None
    assert rows["wrong"]["rms_ratio"] == pytest.approx(0.5)
    assert found.status is RunStatus.COMPLETE
    assert summary.exit_code is ExitCode.FAILED
    assert len(found.launches) == 2
    assert found.launches[0].environment["torch"]
    assert found.launches[0].ceilings["copy_gb_s"] > 0
    assert [advance.done for advance in listener.advances] == list(range(1, 6))
    assert listener.advances[-1].left_s == 0
    assert list(cached.glob("ceilings-*.json"))


@pytest.mark.parametrize(
    ("program", "stored"),
    [
        ("/opt/lib/benchx/__main__.py", "benchx"),
        ("/opt/bin/benchx", "benchx"),
        ("/srv/measure.py", "measure.py"),
    ],
)
def test_a_run_stores_its_command_as_it_was_typed_without_folders(
    write_scenario: Callable[..., Path],
    fake_run: Callable[..., RunSummary],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    stored: str,
) -> None:
    monkeypatch.setattr("sys.argv", [program, "run", "s.yaml"])
    summary = fake_run(write_scenario("good"))
    assert read_meta(summary.path).command == (stored, "run", "s.yaml")
