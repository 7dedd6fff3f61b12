from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchx.core.errors import StoreError
from benchx.core.outcome import Outcome
from benchx.core.record import LaunchRecord
from benchx.store import LaunchInfo, RunMeta, RunStatus, RunWriter, read_run
from benchx.store.extension import EXTENSIONS_FILE
from benchx.store.points import ROW_RULES, PointTable, read_points, write_points
from benchx.store.run import POINTS_FILE

Build = Callable[..., LaunchRecord]


def test_a_run_read_back_equals_what_was_written(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    info = LaunchInfo(launch=0, worker=0, started_at="now", device={"name": "cpu"})
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append_launch(info)
        writer.append(record(0))
        writer.append(record(1, outcome=Outcome.WRONG, reason="o is 2x off"))
        writer.write_points([{"op": "copy", "heads": 1}, {"op": "copy", "reason": "why"}])
    run = read_run(writer.path)
    assert run.launches == (info,)
    assert [entry.outcome for entry in run.records] == [Outcome.OK, Outcome.WRONG]
    assert run.records == writer.records
    assert run.meta == writer.meta
    assert run.rows == (
        {"op": "copy", "heads": 1, "reason": None},
        {"op": "copy", "heads": None, "reason": "why"},
    )
    assert run.rows_current


def test_the_folder_bears_the_name_of_the_scenario_and_is_the_run_id(
    tmp_path: Path, meta: RunMeta
) -> None:
    with RunWriter.create(tmp_path / "deep" / "out", meta) as writer:
        assert writer.path.name.startswith("copying-20")
        assert writer.meta.run_id == writer.path.name


def test_two_runs_in_the_same_second_get_two_folders(
    tmp_path: Path, meta: RunMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = iter(["aaaaaa", "aaaaaa", "bbbbbb"])
    monkeypatch.setattr("benchx.store.writer.secrets.token_hex", lambda _: next(words))
    monkeypatch.setattr("benchx.store.writer.datetime", _StoppedClock)
    with RunWriter.create(tmp_path, meta) as one, RunWriter.create(tmp_path, meta) as two:
        assert one.path != two.path


class _StoppedClock:
    @staticmethod
    def now(zone: object) -> object:
        from datetime import UTC, datetime

        return datetime(2026, 1, 2, tzinfo=UTC)


def test_samples_stay_out_of_the_record_line_and_can_be_read_raw(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
    line = json.loads((writer.path / "records.jsonl").read_text())
    assert "samples" not in line
    key = (writer.records[0].point_id, 0)
    assert read_run(writer.path).samples() == {key: {"device_time_ms": (1.0, 2.0)}}


def test_a_finished_launch_keeps_its_samples_in_one_file(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
        writer.append(record(1))
        before = read_run(writer.path).samples()
        writer.finish_launch(0)
        assert [path.name for path in (writer.path / "samples").iterdir()] == ["launch-0.parquet"]
        assert read_run(writer.path).samples() == before


def test_a_launch_that_ends_twice_keeps_the_samples_of_both(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
        writer.finish_launch(0)
    with RunWriter.resume(writer.path) as writer:
        writer.append(record(1))
        writer.finish_launch(0)
    assert len(read_run(writer.path).samples()) == 2


def test_samples_without_a_record_vanish_when_the_launch_ends(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
        writer._samples.write_part(record(1))
        writer.finish_launch(0)
    assert [key[0] for key in read_run(writer.path).samples()] == [writer.records[0].point_id]


def test_a_line_cut_short_by_a_kill_is_ignored_then_cut_off_and_reported(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
    journal = writer.path / "records.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[: len(whole) // 2])
    run = read_run(writer.path)
    assert len(run.records) == 1
    assert "cut short" in run.notes[0]
    with RunWriter.resume(writer.path) as resumed:
        assert "was cut off" in resumed.notes[0]
        assert journal.read_bytes() == whole
        resumed.append(record(1))
    assert len(read_run(writer.path).records) == 2


def test_any_other_corrupt_line_is_an_error_that_names_file_and_line(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
    journal = writer.path / "records.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"half": \n' + journal.read_bytes())
    with pytest.raises(StoreError, match=r"records\.jsonl:2: "):
        read_run(writer.path)
    with pytest.raises(StoreError, match=r"records\.jsonl:2: "):
        RunWriter.resume(writer.path)


def test_a_record_that_lacks_a_field_is_an_error_that_names_file_and_line(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
    journal = writer.path / "records.jsonl"
    item = json.loads(journal.read_text())
    del item["started_at"]
    journal.write_text(json.dumps(item) + "\n")
    with pytest.raises(StoreError, match=r"records\.jsonl:1: not a record.*started_at"):
        read_run(writer.path)


def test_a_pair_recorded_twice_is_an_error_that_names_both_lines(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
        with pytest.raises(StoreError, match="has a record already"):
            writer.append(record(0))
    journal = writer.path / "records.jsonl"
    journal.write_bytes(journal.read_bytes() * 2)
    with pytest.raises(StoreError, match=r"records\.jsonl:2: .*already on line 1"):
        read_run(writer.path)


def test_a_second_writer_is_refused_until_the_first_has_ended(
    tmp_path: Path, meta: RunMeta
) -> None:
    with (
        RunWriter.create(tmp_path, meta) as writer,
        pytest.raises(StoreError, match="written by another benchx process"),
    ):
        RunWriter.resume(writer.path)
    RunWriter.resume(writer.path).close()


def _resume_and_append(path: Path, record: LaunchRecord, results: object) -> None:
    try:
        with RunWriter.resume(path) as writer:
            writer.append(record)
            multiprocessing.Event().wait(0.5)
        results.put("written")  # type: ignore[attr-defined]
    except StoreError as error:
        results.put(str(error))  # type: ignore[attr-defined]


def test_of_two_processes_that_resume_at_once_one_writes_and_one_is_refused(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        pass
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    crowd = [
        context.Process(target=_resume_and_append, args=(writer.path, record(0), results))
        for _ in range(2)
    ]
    for process in crowd:
        process.start()
    told = sorted(results.get(timeout=30) for _ in crowd)
    for process in crowd:
        process.join()
    assert "another benchx process" in told[0]
    assert told[1] == "written"
    assert len(read_run(writer.path).records) == 1


def test_a_run_is_partial_until_every_point_has_a_record_in_every_launch(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        for launch in (0, 1):
            for point in range(4):
                assert read_run(writer.path).status is RunStatus.PARTIAL
                writer.append(record(point, launch))
        assert read_run(writer.path).status is RunStatus.COMPLETE


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.CRASHED, RunStatus.FAILED),
        (Outcome.SKIPPED, RunStatus.COMPLETE),
        (Outcome.UNSUPPORTED, RunStatus.COMPLETE),
    ],
)
def test_a_run_of_failures_only_has_failed_and_one_of_skips_only_has_not(
    tmp_path: Path, meta: RunMeta, record: Build, outcome: Outcome, status: RunStatus
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        for launch in (0, 1):
            for point in range(4):
                writer.append(record(point, launch, outcome=outcome, reason="why"))
    assert read_run(writer.path).status is status


def test_the_later_line_of_a_worker_replaces_the_earlier(tmp_path: Path, meta: RunMeta) -> None:
    first = LaunchInfo(launch=0, worker=0, started_at="now", device={})
    ended = LaunchInfo(launch=0, worker=0, started_at="now", device={}, ended="complete")
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append_launch(first)
        writer.append_launch(ended)
    assert read_run(writer.path).launches == (ended,)


def test_rows_older_than_the_records_are_told_apart(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
        writer.write_points([{"op": "copy"}])
        writer.append(record(1))
    assert not read_run(writer.path).rows_current


def test_rows_derived_by_older_rules_are_told_apart(
    tmp_path: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
        rows = ({"op": "copy"},)
        write_points(writer.path / POINTS_FILE, PointTable(rows, 1))
        assert read_run(writer.path).rows_current
        write_points(writer.path / POINTS_FILE, PointTable(rows, 1, rules=ROW_RULES - 1))
    assert not read_run(writer.path).rows_current


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a run folder: it has no run\.json"):
        read_run(tmp_path)


def test_an_axis_with_numbers_and_words_is_stored_as_text_and_read_with_its_types(
    tmp_path: Path, meta: RunMeta
) -> None:
    rows = (
        {"a": 1, "b": 1, "c": True},
        {"a": "x", "b": 2.5, "c": 0.5},
        {"a": None, "b": None, "c": "1"},
        {"a": "1", "b": 3, "c": False},
    )
    with RunWriter.create(tmp_path, meta) as writer:
        writer.write_points(rows)
    read = read_run(writer.path).rows
    assert read == rows
    assert [type(row["a"]) for row in read] == [int, str, type(None), str]
    text = pq.read_table(writer.path / POINTS_FILE).column("a").to_pylist()
    assert text == ["1", "x", None, "1"]


def test_words_of_several_launches_are_a_list_in_the_file(tmp_path: Path, meta: RunMeta) -> None:
    rows = ({"notes": ["a+b", "c"]}, {"notes": None})
    with RunWriter.create(tmp_path, meta) as writer:
        writer.write_points(rows)
    assert read_run(writer.path).rows == rows
    column = pq.read_table(writer.path / POINTS_FILE).schema.field("notes")
    assert column.type == pa.list_(pa.string())


def test_the_axes_of_a_run_are_those_of_its_plan(tmp_path: Path, meta: RunMeta) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.write_points([{"op": "copy"}])
    run = read_run(writer.path)
    assert run.axes == tuple(meta.plan[0].point.params)
    assert read_points(writer.path / POINTS_FILE).axes == run.axes


def test_added_launches_of_another_run_are_refused(tmp_path: Path, meta: RunMeta) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        pass
    line = {"schema": 1, "launches": [3, 3], "resolved": {}, "command": [], "added_at": "t"}
    text = json.dumps(line | {"benchx_version": "0"})
    (writer.path / EXTENSIONS_FILE).write_text(text + "\n")
    with pytest.raises(StoreError, match=r"extensions\.jsonl:1: it has launches of 2 parts"):
        read_run(writer.path)


def test_half_a_line_of_added_launches_adds_none(tmp_path: Path, meta: RunMeta) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        pass
    (writer.path / EXTENSIONS_FILE).write_text('{"schema": 1, "laun')
    assert read_run(writer.path).meta.launches() == 2
