from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchx.core.errors import StoreError
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import SCHEMA, Check, LaunchRecord, Timing, Work
from benchx.store import PlanEntry, RunMeta, RunWriter, read_run
from benchx.store.journal import Journal, read_entries
from benchx.store.migrations import migrate
from benchx.store.plain import plain, to_line
from benchx.store.samples import SampleFolder
from benchx.store.shape import restored

finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
maps = st.dictionaries(words, values, max_size=3)
samples = st.dictionaries(words, st.lists(finite, min_size=1, max_size=9).map(tuple), max_size=3)
records = st.builds(
    LaunchRecord,
    launch=st.integers(0, 9),
    outcome=st.just(Outcome.OK),
    values=st.dictionaries(words, finite, min_size=1, max_size=4),
    samples=samples,
    check=st.none()
    | st.builds(Check, rms_ratio=st.dictionaries(words, finite, min_size=1), bound=finite),
    work=st.none() | st.builds(Work, flops=finite),
    timing=st.none() | st.builds(Timing, notes=st.lists(words, max_size=3).map(tuple)),
    telemetry=maps,
    provenance=maps,
    schema=st.just(SCHEMA),
)
in_a_folder = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@in_a_folder
@given(record=records)
def test_any_record_survives_the_way_to_the_disk_and_back(
    record: LaunchRecord, meta: RunMeta, tmp_path: Path
) -> None:
    point = meta.plan[0].point
    record = replace(record, point_id=point.point_id)
    meta = replace(meta, plan=(PlanEntry(point, 10),))
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record)
    run = read_run(writer.path)
    key = (record.point_id, record.launch)
    assert replace(run.records[0], samples=run.samples().get(key, {})) == record


@given(items=st.lists(maps, max_size=5), cut=st.integers(1, 400))
@in_a_folder
def test_a_journal_cut_anywhere_keeps_every_line_before_the_cut(
    items: list[dict[str, object]], cut: int, tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    path.unlink(missing_ok=True)
    journal = Journal(path)
    for item in items:
        journal.append(item)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    journal.cut_torn_end()
    journal.append({"last": True})
    journal.close()
    survivors = whole[:cut].count(b"\n")
    assert read_entries(path).items == (*items[:survivors], {"last": True})


@given(parts=st.dictionaries(st.tuples(words, st.integers(0, 3)), samples, max_size=4))
@in_a_folder
def test_samples_keep_value_and_order(
    parts: dict[tuple[str, int], dict[str, tuple[float, ...]]], tmp_path: Path
) -> None:
    from benchx.store.samples import _encode

    (tmp_path / "launch-0.parquet").write_bytes(_encode(parts))
    assert SampleFolder(tmp_path).read() == {key: part for key, part in parts.items() if part}


@given(value=values)
def test_plain_data_is_left_as_it_is(value: object) -> None:
    assert plain(value) == value


def test_what_json_cannot_say_becomes_null_or_text() -> None:
    odd = {"nan": math.nan, "inf": [math.inf], "path": Path("a"), 3: (1,)}
    assert plain(odd) == {"nan": None, "inf": [None], "path": "a", "3": [1]}
    assert b"NaN" not in to_line(odd)


def test_the_same_value_gives_the_same_line_whatever_the_order_of_its_keys() -> None:
    assert to_line({"a": 1, "b": 2}) == to_line({"b": 2, "a": 1})


@given(
    params=st.dictionaries(words, st.booleans() | st.integers() | finite | words, max_size=4),
    launches=st.integers(1, 9),
)
def test_a_plan_read_back_has_equal_points_and_ids(
    params: dict[str, object], launches: int
) -> None:
    point = Point(kind="kernel", subject="op", backend="b", params=params)  # type: ignore[arg-type]
    meta = RunMeta(
        run_id="r",
        scenario="s",
        source="s.yaml",
        resolved={"a": [1, {"b": None}]},
        plan=(PlanEntry(point, launches),),
        seeds=(7,),
        command=("benchx",),
        started_at="now",
        benchx_version="0",
    )
    again = restored(json.loads(json.dumps(meta.to_json())), RunMeta)
    assert again == meta
    assert again.plan[0].point.point_id == point.point_id


def _from_zero(document: dict[str, object]) -> dict[str, object]:
    return {"outcome": document["result"]}


def test_an_older_document_is_brought_forward_step_by_step() -> None:
    table = {
        ("record", 0): _from_zero,
        ("record", 1): lambda document: document | {"new": True},
    }
    old = {"schema": 0, "result": "ok"}
    new = migrate(old, "record", where="here", table=table, target=2)  # type: ignore[arg-type]
    assert new == {"schema": 2, "outcome": "ok", "new": True}


def test_a_document_without_a_path_forward_is_refused() -> None:
    with pytest.raises(StoreError, match="here: schema 0 is too old"):
        migrate({"schema": 0}, "record", where="here", table={}, target=1)


def test_a_document_of_a_newer_benchx_is_refused_not_guessed_at() -> None:
    with pytest.raises(StoreError, match=r"newer than this benchx.*upgrade"):
        migrate({"schema": SCHEMA + 1}, "run", where="here")


@pytest.mark.parametrize("schema", [None, "1", 1.5])
def test_a_document_without_a_version_is_refused(schema: object) -> None:
    with pytest.raises(StoreError, match="no schema version"):
        migrate({"schema": schema}, "run", where="here")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 1}', "\x00\x01", '{"schema": 1, "plan": [1]}']
)
def test_a_run_file_that_is_something_else_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(StoreError, match=r"run\.json"):
        read_run(tmp_path)
