"""Run folders that somebody edited or a script garbled: one sentence that names the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchx.core.errors import StoreError
from benchx.core.record import Check, LaunchRecord, Timing, Work
from benchx.runner.aggregate import load_run
from benchx.store import LaunchInfo, RunMeta, RunWriter

FILES = ("run.json", "records.jsonl", "launches.jsonl")

PYTHON = re.compile(
    r"Error\b|__init__|object|attribute|argument|subscript|iterable|\(b?['\"]|NoneType"
)
"""What Python's own exceptions say."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)

MANY = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each example writes its run anew."""
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture
def whole(tmp_path: Path, meta: RunMeta, record: Callable[..., LaunchRecord]) -> dict[str, str]:
    """File name -> text, of a run in which every field is in use."""
    full = record(
        check=Check(rms_ratio={"o": 1e-3}, bound=0.01, method="fp64"),
        work=Work(flops=1.0, min_bytes=1, tokens=1, kv_cache_bytes=0, kv_state_bytes=0,
                  leaves_kv=True),
        timing=Timing(timer="cpu", cache="cold", stop="max_time", samples=2, notes=("a",)),
        telemetry={"control_drift": 0.1},
        provenance={"version": "1"},
    )  # fmt: skip
    info = LaunchInfo(launch=0, worker=0, started_at="now", device={"name": "x"}, drift=0.5)
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append_launch(info)
        writer.append(full)
    return {name: (writer.path / name).read_text() for name in FILES}


def places(data: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON
    """Every (container, key) in a document."""
    keys = data.keys() if isinstance(data, dict) else range(len(data))
    for key in list(keys):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from places(data[key])


def damage(
    folder: Path, whole: dict[str, str], data: st.DataObject, values: st.SearchStrategy[Any]
) -> None:
    """Write the run with one value of one file gone, or another in its place."""
    damaged = data.draw(st.sampled_from(FILES))
    document = json.loads(whole[damaged])
    container, key = data.draw(st.sampled_from(list(places(document))))
    if data.draw(st.booleans()):
        container[key] = data.draw(values)
    else:
        del container[key]
    for name, text in whole.items():
        (folder / name).write_text(json.dumps(document) + "\n" if name == damaged else text)


def refusal(folder: Path) -> str:
    """How reading a run is refused; empty when it is not."""
    try:
        load_run(folder)
    except StoreError as error:
        return error.message
    return ""


@given(data=st.data())
@MANY
def test_whatever_stands_in_the_place_of_a_value_is_read_or_refused(
    folder: Path, whole: dict[str, str], data: st.DataObject
) -> None:
    damage(folder, whole, data, JSON)
    with suppress(StoreError):
        load_run(folder)


@given(data=st.data())
@MANY
def test_no_refusal_speaks_in_the_words_of_python(
    folder: Path, whole: dict[str, str], data: st.DataObject
) -> None:
    damage(folder, whole, data, st.sampled_from([None, 7.5, "x", [None], {}, {"a": None}]))
    message = refusal(folder)
    assert not PYTHON.search(message), message


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "it is empty"),
        (b'{"run_id": "a', "not JSON at line 1, column 12"),
        (b"[1, 2]", "it holds a list in the place of a mapping"),
        (b"null", "it holds null in the place of a mapping"),
        (b"7", "it holds 7 in the place of a mapping"),
        (b"\x80\x81\xff\x00PAR1", "it is not text"),
    ],
)
def test_a_broken_run_json_is_told_plainly_with_what_to_do(
    folder: Path, whole: dict[str, str], content: bytes, told: str
) -> None:
    for file, text in whole.items():
        (folder / file).write_bytes(content if file == "run.json" else text.encode())
    with pytest.raises(StoreError) as refused:
        load_run(folder)
    assert f"{folder}/run.json: " in refused.value.message
    assert told in refused.value.message
    assert not PYTHON.search(refused.value.message)
    assert refused.value.hint is not None


@pytest.mark.parametrize("name", ["records.jsonl", "launches.jsonl"])
@pytest.mark.parametrize("line", [b"[1]", b"null", b"", b"\x80\x81\xff\x00", b'{"schema": 1'])
def test_a_broken_line_is_told_plainly_with_what_to_do(
    folder: Path, whole: dict[str, str], name: str, line: bytes
) -> None:
    for file, text in whole.items():
        (folder / file).write_bytes(line + b"\n" if file == name else text.encode())
    with pytest.raises(StoreError, match=rf"{name}:1: this line is not a JSON object") as refused:
        load_run(folder)
    assert refused.value.hint is not None


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("run.json", {"plan": [None]}, "plan.0: got None, expected a mapping"),
        ("run.json", {"plan": [{"kind": "kernel"}]}, "plan.0.subject: missing"),
        ("run.json", {"plan": 7}, "plan: got 7, expected a list"),
        ("run.json", {"extra": 7}, "extra: no field of that name is known"),
        ("records.jsonl", {"outcome": "good"}, "outcome: got 'good', expected 'ok', 'wrong'"),
        ("records.jsonl", {"check": []}, r"check: got \[\], expected a mapping"),
        ("records.jsonl", {"check": {"bound": 1}}, "check.rms_ratio: missing"),
        ("launches.jsonl", {"control_ms": 7}, "control_ms: got 7, expected a list"),
    ],
)
def test_a_broken_field_is_named(
    folder: Path, whole: dict[str, str], name: str, change: dict[str, object], told: str
) -> None:
    for file, text in whole.items():
        document = json.loads(text) | change if file == name else json.loads(text)
        (folder / file).write_text(json.dumps(document) + "\n")
    with pytest.raises(StoreError, match=told):
        load_run(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_document_that_nests_without_end_is_refused(
    folder: Path, whole: dict[str, str], name: str
) -> None:
    for file, text in whole.items():
        (folder / file).write_text("[" * 200_000 + "\n" if file == name else text)
    with pytest.raises(StoreError, match=name):
        load_run(folder)


def test_a_value_that_was_not_finite_is_absent_when_it_is_read_back(
    folder: Path, whole: dict[str, str]
) -> None:
    line = json.loads(whole["records.jsonl"])
    line["values"]["call_time_ms"] = None
    for name, text in whole.items():
        (folder / name).write_text(json.dumps(line) + "\n" if "records" in name else text)
    row = load_run(folder).rows[0]
    assert (row["device_time_ms_p50"], row["call_time_ms_p50"]) == (1.5, None)


def test_a_damaged_table_of_points_is_derived_anew_with_a_note(
    folder: Path, whole: dict[str, str]
) -> None:
    for name, text in whole.items():
        (folder / name).write_text(text)
    for content in (b"", b"garbage"):
        (folder / "points.parquet").write_bytes(content)
        run = load_run(folder)
        assert run.rows[0]["device_time_ms_p50"] == 1.5
        assert any("points.parquet is not a readable Parquet file" in note for note in run.notes)
    (folder / "points.parquet").unlink()
