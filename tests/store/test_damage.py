"""Run folders that somebody edited or a script garbled: one sentence that names the file."""

from __future__ import annotations

import json
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

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
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


@given(data=st.data())
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_whatever_stands_in_the_place_of_a_value_is_read_or_refused(
    folder: Path, whole: dict[str, str], data: st.DataObject
) -> None:
    damaged = data.draw(st.sampled_from(FILES))
    document = json.loads(whole[damaged])
    container, key = data.draw(st.sampled_from(list(places(document))))
    if data.draw(st.booleans()):
        container[key] = data.draw(JSON)
    else:
        del container[key]
    for name, text in whole.items():
        (folder / name).write_text(json.dumps(document) + "\n" if name == damaged else text)
    with suppress(StoreError):
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
