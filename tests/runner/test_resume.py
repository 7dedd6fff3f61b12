"""Kill -9, Ctrl-C and changed scenarios: nothing finished is measured again, nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchx.cli.run import _stored
from benchx.core.axes import AxisSpec
from benchx.core.errors import ExitCode, NotComparable, StoreError, UsageError
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.runner import NEWEST, RunSummary, Silent
from benchx.runner.plan import Plan, make_plan
from benchx.runner.resume import newest_unfinished
from benchx.scenario import Scenario, Vocabulary
from benchx.store import RunStatus, RunWriter, read_run
from benchx.store.extension import EXTENSIONS_FILE
from benchx.store.samples import SampleFolder

Write = Callable[..., Path]
Start = Callable[..., RunSummary]
SCRIPT = Path(__file__).parent / "fakes" / "fake_run.py"
MANY = ", ".join(map(str, range(12)))
"""Enough points of 0.15 s that a test catches the run in the middle."""


def start_script(*arguments: Path) -> subprocess.Popen[str]:
    """A run in a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_records(out_dir: Path, count: int) -> Path:
    """The run folder, once so many records are in it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for journal in out_dir.glob("*/records.jsonl"):
            if journal.read_bytes().count(b"\n") >= count:
                return journal.parent
        time.sleep(0.02)
    raise AssertionError("no records")


def session_members(session: int) -> list[int]:
    """Live processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, member_of = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(member_of) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


def workers_of(parent: int) -> list[int]:
    """Children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def test_after_kill_9_of_the_run_no_worker_lives_and_resume_measures_the_rest_only(
    write_scenario: Write, tmp_path: Path
) -> None:
    scenario, out = write_scenario("slow", sizes=MANY, launches=2), tmp_path / "out"
    first = start_script(scenario, out)
    folder = wait_for_records(out, 3)
    workers = workers_of(first.pid)
    first.kill()
    first.communicate()
    before = (folder / "records.jsonl").read_bytes()
    kept = before.count(b"\n")
    assert workers
    deadline = time.monotonic() + 60
    while any(map(session_members, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(session_members, workers))

    second = start_script(scenario, out, folder)
    told, _ = second.communicate(timeout=120)
    summary = json.loads(told)
    run = read_run(folder)
    assert second.returncode == ExitCode.OK
    assert summary["kept"] == kept
    assert summary["written"] == 24 - kept
    assert any(f"{kept} of 24 measurements are there already" in note for note in summary["notes"])
    assert (folder / "records.jsonl").read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert run.status is RunStatus.COMPLETE
    assert len({(record.point_id, record.launch) for record in run.records}) == 24
    assert len(run.samples()) == 24


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_go_on_and_is_whole(
    write_scenario: Write, tmp_path: Path, number: signal.Signals
) -> None:
    scenario, out = write_scenario("slow", sizes=MANY), tmp_path / "out"
    process = start_script(scenario, out)
    folder = wait_for_records(out, 2)
    workers = workers_of(process.pid)
    process.send_signal(number)
    _, told = process.communicate(timeout=120)
    run = read_run(folder)
    assert process.returncode == 128 + number
    assert re.search(rf"interrupted by {number.name} after \d+ of 12 measurements", told)
    assert f"--resume {folder}" in told
    assert "Traceback" not in told
    assert run.status is RunStatus.PARTIAL
    assert run.rows_current
    assert not any(map(session_members, workers))
    assert run.launches[0].ended == "interrupted"


def test_a_disk_error_in_a_run_says_the_command_that_continues_it(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("can't write records.jsonl: No space left", hint="free some space")

    monkeypatch.setattr(RunWriter, "append", full)
    with pytest.raises(StoreError) as stopped:
        fake_run(write_scenario("good", sizes="1"))
    monkeypatch.undo()
    hint = stopped.value.hint or ""
    assert hint.startswith("free some space; then: benchx run --resume ")
    assert read_run(Path(hint.rpartition(" ")[2])).status is RunStatus.PARTIAL


def test_a_run_whose_samples_are_not_merged_yet_is_resumed_without_its_path(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was full after the last record: nothing is left to measure."""

    def full(*_: object) -> None:
        raise StoreError("can't write launch-0.parquet: No space left")

    scenario = write_scenario("good", sizes="1, 2")
    monkeypatch.setattr(SampleFolder, "compact", full)
    with pytest.raises(StoreError):
        fake_run(scenario)
    monkeypatch.undo()
    resumed = fake_run(scenario, resume=NEWEST)
    assert (resumed.kept, resumed.written) == (2, 0)
    assert not SampleFolder(resumed.path / "samples").has_parts()


class Killer(Silent):
    """Kills the worker of this process as soon as it has begun a point that never ends."""

    def phase(self, launch: int, name: str, points: Sequence[Point]) -> None:
        if [point.backend for point in points] != ["hang"]:
            return
        for child in workers_of(os.getpid()):
            if b"fake_worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)


def test_a_worker_killed_from_outside_costs_only_the_point_in_flight(
    write_scenario: Write, fake_run: Start
) -> None:
    summary = fake_run(write_scenario("good", "hang", sizes="1, 2, 3"), progress=Killer())
    run = read_run(summary.path)
    backends = {point_id: point.backend for point_id, point in run.meta.points().items()}
    found = sorted((backends[r.point_id], r.outcome, r.reason or "") for r in run.records)
    assert summary.exit_code is ExitCode.FAILED
    assert found[:3] == [("good", Outcome.OK, "")] * 3
    assert [(backend, outcome) for backend, outcome, _ in found[3:]] == [
        ("hang", Outcome.CRASHED)
    ] * 3
    assert all("died of SIGKILL during timing" in reason for _, _, reason in found[3:])


def test_resume_without_a_path_takes_the_newest_unfinished_run_of_the_scenario(
    write_scenario: Write, fake_run: Start, tmp_path: Path
) -> None:
    scenario = write_scenario("good", sizes="1, 2")
    finished = fake_run(scenario)
    cut = _unfinish(fake_run(scenario).path)
    newest = _unfinish(fake_run(scenario).path)
    assert len({finished.path, cut, newest}) == 3
    _set_start(newest, "2999")
    resumed = fake_run(scenario, resume=NEWEST)
    assert resumed.path == newest
    assert (resumed.kept, resumed.written) == (1, 1)
    assert fake_run(scenario, resume=NEWEST).path == cut
    with pytest.raises(UsageError, match="no unfinished run of faking"):
        fake_run(scenario, resume=NEWEST)


def test_a_run_that_cannot_be_read_keeps_no_other_from_being_resumed(
    write_scenario: Write, fake_run: Start, tmp_path: Path
) -> None:
    scenario = write_scenario("good", sizes="1, 2")
    cut = _unfinish(fake_run(scenario).path)
    foreign = tmp_path / "out" / "other-20260101T000000Z-abcdef"
    foreign.mkdir()
    (foreign / "run.json").write_text("{")
    assert newest_unfinished(tmp_path / "out", "faking") == cut
    foreign.rename(tmp_path / "out" / "faking-20260101T000000Z-abcdef")
    for name in ("faking", None):
        with pytest.raises(StoreError, match=r"faking-2026.*run\.json: not a run: .*--resume PATH"):
            newest_unfinished(tmp_path / "out", name)


def test_a_run_without_its_empty_folders_is_resumed(write_scenario: Write, fake_run: Start) -> None:
    """A checkout and some archives have none of them."""
    scenario = write_scenario("good", sizes="1, 2")
    folder = _unfinish(fake_run(scenario).path)
    for name in ("logs", "samples"):
        shutil.rmtree(folder / name)
    assert fake_run(scenario, resume=folder).written == 1


def _unfinish(folder: Path, records: int = 1) -> Path:
    journal = folder / "records.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:records]))
    return folder


def _contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """What is stored of a run, and which file holds it: one that is replaced is another."""
    names = ("run.json", "records.jsonl", "launches.jsonl", "points.parquet")
    return {name: ((folder / name).read_bytes(), (folder / name).stat().st_ino) for name in names}


def _set_start(folder: Path, started_at: str) -> None:
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(document | {"started_at": started_at}))


def test_a_finished_run_is_resumed_without_measuring_anything(
    write_scenario: Write, fake_run: Start
) -> None:
    scenario = write_scenario("good")
    folder = fake_run(scenario).path
    before = (folder / "launches.jsonl").read_bytes()
    again = fake_run(scenario, resume=folder)
    assert (again.kept, again.written) == (1, 0)
    assert (folder / "launches.jsonl").read_bytes() == before


def test_a_run_whose_scenario_has_changed_is_not_resumed_and_the_change_is_named(
    write_scenario: Write, fake_run: Start
) -> None:
    folder = fake_run(write_scenario("good", launches=2)).path
    changes: list[tuple[dict[str, object], str]] = [
        ({"launches": 1}, r"measure\.launches was 2, now 1"),
        ({"launches": 3, "sizes": "1, 2"}, r"axes\.size was .*measure\.launches was 2, now 3"),
        ({"sizes": "1, 2"}, r"axes\.size was \[1\], now \[1, 2\]"),
        ({"limit": "3s"}, r"measure\.setup_time_limit was '20.*s', now '3.*s'"),
    ]
    for change, told in changes:
        with pytest.raises(UsageError, match=told):
            fake_run(write_scenario("good", **({"launches": 2} | change)), resume=folder)


def test_launches_are_added_to_a_finished_run_and_its_request_stays_as_it_was(
    write_scenario: Write, fake_run: Start
) -> None:
    folder = fake_run(write_scenario("good", "segfault", launches=2)).path
    before = (folder / "run.json").read_bytes()
    more = fake_run(write_scenario("good", "segfault", launches=4), resume=folder)
    assert (more.kept, more.written, more.status) == (4, 4, RunStatus.COMPLETE)
    assert "launches were added: 2 before, now 4" in more.notes
    run = read_run(folder)
    assert {row["backend"]: row["launches"] for row in run.rows} == {"good": 4, "segfault": 0}
    assert run.meta.resolved["measure"]["launches"] == 4
    assert (folder / "run.json").read_bytes() == before
    (line,) = (folder / EXTENSIONS_FILE).read_text().splitlines()
    assert json.loads(line)["launches"] == [4]


def test_an_interrupted_run_with_added_launches_goes_on_from_what_is_stored_of_it(
    write_scenario: Write, fake_run: Start
) -> None:
    folder = fake_run(write_scenario("good", launches=1)).path
    _unfinish(fake_run(write_scenario("good", launches=3), resume=folder).path, records=2)
    assert read_run(folder).status is RunStatus.PARTIAL
    assert fake_run(_stored(folder), resume=folder).written == 1
    again = fake_run(write_scenario("good", launches=4), resume=folder)
    assert (again.kept, again.written, again.status) == (3, 1, RunStatus.COMPLETE)


def test_launches_of_one_part_of_a_suite_are_added(fake_run: Start, tmp_path: Path) -> None:
    part = (
        "kind: kernel, op: fake, backends: [good], axes: {{size: [{}]}}, measure: {{launches: {}}}"
    )
    path = tmp_path / "two.yaml"

    def suite(launches: int) -> Path:
        parts = f"[{{{part.format(1, 1)}}}, {{{part.format(2, launches)}}}]"
        path.write_text(f"schema: 1\nkind: suite\nname: two\nparts: {parts}\n")
        return path

    folder = fake_run(suite(1)).path
    assert fake_run(suite(3), resume=folder).written == 2
    assert [row["launches"] for row in read_run(folder).rows] == [1, 3]


def test_a_run_that_can_not_go_on_here_gets_no_launches(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake_run(write_scenario("good", launches=1)).path
    before = _contents(folder)
    monkeypatch.setenv("FAKE_DEVICE", "other")
    with pytest.raises(NotComparable):
        fake_run(write_scenario("good", launches=2), resume=folder)
    assert _contents(folder) == before
    assert not (folder / EXTENSIONS_FILE).exists()
    assert read_run(folder).status is RunStatus.COMPLETE


TWO_AXES = """\
schema: 1
name: two-axes
title: In which order?
kind: kernel
op: fake
backends: [slow, good]
axes: {size: [3, 1, 2], batch: [2, 1]}
measure: {launches: 2, setup_time_limit: 20s}
"""
"""The axes are not in the order of the alphabet, nor are the values."""


@pytest.mark.parametrize("sorts_keys", [False, True], ids=["as written now", "as it was once"])
def test_an_interrupted_run_of_two_axes_goes_on_from_what_is_stored_of_it(
    fake_run: Start, tmp_path: Path, sorts_keys: bool
) -> None:
    scenario, out = tmp_path / "two.yaml", tmp_path / "out"
    scenario.write_text(TWO_AXES)
    first = start_script(scenario, out)
    folder = wait_for_records(out, 3)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=120)
    scenario.unlink()
    if sorts_keys:
        document = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(document, sort_keys=True))
    before = read_run(folder)
    resumed = fake_run(_stored(folder), resume=folder)
    run = read_run(folder)
    assert resumed.kept == len(before.records) < 24
    assert resumed.kept + resumed.written == 24
    assert run.status is RunStatus.COMPLETE
    assert run.meta == before.meta
    planned = [(p.params["size"], p.params["batch"]) for p in run.meta.points().values()]
    assert list(dict.fromkeys(planned)) == [(3, 2), (3, 1), (1, 2), (1, 1), (2, 2), (2, 1)]
    ids = list(run.meta.points())
    assert [r.point_id for r in run.records] == 2 * ids


def test_a_default_that_has_changed_is_named(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fake_run as script

    scenario = write_scenario("good", sizes="1, 2")
    folder = fake_run(scenario).path
    axes = {**script.WORDS.ops["fake"].axes, "batch": AxisSpec(type="int", doc="batch", default=8)}
    monkeypatch.setitem(script.WORDS.ops, "fake", replace(script.WORDS.ops["fake"], axes=axes))
    with pytest.raises(UsageError, match=r"batch was 1, now 8 \(the scenario leaves it to the"):
        fake_run(scenario, resume=folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda plan: plan[:1], r"1 point is gone, such as fake/good batch=1 size=2"),
        (lambda plan: (replace(plan[0], launches=3), plan[1]),
         r"launches of fake/good batch=1 size=1 were 1, now 3"),
    ],
)  # fmt: skip
def test_a_plan_that_has_changed_otherwise_is_told_by_its_points(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch,
    change: Callable[..., Any], told: str,
) -> None:  # fmt: skip
    scenario = write_scenario("good", sizes="1, 2")
    folder = fake_run(scenario).path

    def changed(scenario: Scenario, vocabulary: Vocabulary) -> Plan:
        plan = make_plan(scenario, vocabulary)
        return replace(plan, entries=change(plan.entries))

    monkeypatch.setattr("benchx.runner.execution.make_plan", changed)
    with pytest.raises(UsageError, match=told):
        fake_run(scenario, resume=folder)


def test_a_run_is_not_resumed_on_another_device_and_stays_as_it_was(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = write_scenario("segfault", "good", launches=2)
    folder = _unfinish(fake_run(scenario).path, records=2)
    before = _contents(folder)
    monkeypatch.setenv("FAKE_DEVICE", "other")
    told = r"measured on 1 x fake \(cpu, none\), but here is 1 x other \(cpu, none\) \(continue it"
    with pytest.raises(NotComparable, match=told):
        fake_run(scenario, resume=folder)
    assert _contents(folder) == before
    monkeypatch.delenv("FAKE_DEVICE")
    assert fake_run(scenario, resume=folder).status is RunStatus.COMPLETE


SOFTWARE = {
    "torch": "2.11.0",
    "triton": "3.6.0",
    "cuda": "13.0",
    "hip": None,
    "driver": "580.1",
    "benchx": "0.1.0",
    "code": {"benchx": "aaaa", "benchx_kernels": "bbbb"},
    "method": {"kernel": 1},
    "card": {"id": "abcd", "power_limit_w": 700.0, "ecc": None},
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"torch": "2.12.0"}, "torch was 2.11.0, now 2.12.0"),
        ({"triton": None}, "triton was 3.6.0, now absent"),
        ({"cuda": "13.1", "driver": "590"}, "cuda was 13.0, now 13.1; driver was 580.1, now 590"),
        ({"hip": "7.0"}, "hip was absent, now 7.0"),
        ({"benchx": "0.2.0"}, "benchx was 0.1.0, now 0.2.0"),
        ({"code": {"benchx": "cccc", "benchx_kernels": "bbbb"}}, "code benchx was aaaa, now cccc"),
        ({"method": {"kernel": 2}}, "method kernel was 1, now 2"),
        ({"card": {"power_limit_w": 500.0}}, "card power_limit_w was 700.0, now 500.0"),
    ],
)
def test_a_run_is_not_resumed_under_other_conditions_and_stays_as_it_was(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch,
    change: dict[str, object], told: str,
) -> None:  # fmt: skip
    scenario = write_scenario("good", launches=2)
    monkeypatch.setenv("FAKE_ENVIRONMENT", json.dumps(SOFTWARE))
    folder = _unfinish(fake_run(scenario).path, records=1)
    before = _contents(folder)
    monkeypatch.setenv("FAKE_ENVIRONMENT", json.dumps(SOFTWARE | change))
    with pytest.raises(NotComparable, match=rf"other conditions: {told} \(.*start a new run"):
        fake_run(scenario, resume=folder)
    assert _contents(folder) == before
    monkeypatch.setenv("FAKE_ENVIRONMENT", json.dumps(SOFTWARE))
    assert fake_run(scenario, resume=folder).status is RunStatus.COMPLETE


@pytest.mark.parametrize(
    "older", [{}, {"torch": "2.11.0", "benchx": None, "driver": None}], ids=["nothing", "some"]
)
def test_what_an_older_run_did_not_record_keeps_nobody_from_resuming_it(
    write_scenario: Write,
    fake_run: Start,
    monkeypatch: pytest.MonkeyPatch,
    older: dict[str, object],
) -> None:
    scenario = write_scenario("good", launches=2)
    monkeypatch.setenv("FAKE_ENVIRONMENT", json.dumps(older))
    folder = _unfinish(fake_run(scenario).path, records=1)
    monkeypatch.setenv("FAKE_ENVIRONMENT", json.dumps(SOFTWARE))
    assert fake_run(scenario, resume=folder).status is RunStatus.COMPLETE


def test_a_run_is_resumed_on_another_card_of_the_same_kind(
    write_scenario: Write, fake_run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = write_scenario("good", launches=2)
    monkeypatch.setenv("FAKE_ENVIRONMENT", json.dumps(SOFTWARE))
    folder = _unfinish(fake_run(scenario).path, records=1)
    other = SOFTWARE | {"card": {"id": "efgh", "power_limit_w": 700.0, "ecc": True}}
    monkeypatch.setenv("FAKE_ENVIRONMENT", json.dumps(other))
    assert fake_run(scenario, resume=folder).status is RunStatus.COMPLETE


def test_a_folder_that_is_no_run_is_not_resumed(
    write_scenario: Write, fake_run: Start, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="is not a run folder"):
        fake_run(write_scenario("good"), resume=tmp_path)


def test_a_point_that_failed_is_not_run_again_in_later_launches(
    write_scenario: Write, fake_run: Start
) -> None:
    summary = fake_run(write_scenario("segfault", "good", launches=3))
    run = read_run(summary.path)
    failed = [record for record in run.records if record.outcome is Outcome.CRASHED]
    assert [record.launch for record in failed] == [0, 1, 2]
    assert all("not run again, launch 0 was: the worker died" in r.reason for r in failed[1:])
    assert len(run.launches) == 4
    assert summary.status is RunStatus.COMPLETE
    assert {row["backend"]: row["launches"] for row in run.rows} == {"segfault": 0, "good": 3}


def test_a_full_disk_stops_the_run_with_one_sentence_and_keeps_the_records(
    write_scenario: Write, fake_run: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    scenario = write_scenario("good", sizes="1, 2, 3")
    real_fsync = os.fsync

    def full(file: int) -> None:
        if sum(b.count(b"\n") for b in map(Path.read_bytes, tmp_path.glob("out/*/rec*"))) >= 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(file)

    monkeypatch.setattr("benchx.store.journal.os.fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        fake_run(scenario)
    monkeypatch.undo()
    folder = next((tmp_path / "out").iterdir())
    kept = len(read_run(folder).records)
    resumed = fake_run(scenario, resume=folder)
    assert (resumed.kept, resumed.written) == (kept, 3 - kept)
    assert resumed.exit_code is ExitCode.OK
