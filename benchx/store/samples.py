"""Raw samples: one Parquet part per point while a launch runs, one file per launch afterwards.

Columns: `point_id`, `launch`, `metric`, `index` (order of the sample) and `value` in the metric's
unit. A part is written before the record that it belongs to, so a record never lacks its samples.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchx.core.errors import StoreError
from benchx.core.record import LaunchRecord
from benchx.store.atomic import write_atomic
from benchx.store.faults import storing

SampleKey = tuple[str, int]
"""(point id, launch)."""

Samples = Mapping[str, tuple[float, ...]]
"""Metric id -> raw samples."""


@dataclass(frozen=True)
class SampleFolder:
    """The folder `samples/` of a run."""

    path: Path

    def write_part(self, record: LaunchRecord) -> None:
        """Store the samples of one record; nothing is written when it has none."""
        if not record.samples:
            return
        folder = self.path / f"launch-{record.launch}"
        with storing(folder, "create"):
            folder.mkdir(parents=True, exist_ok=True)
        key = (record.point_id, record.launch)
        write_atomic(folder / f"{record.point_id}.parquet", _encode({key: record.samples}))

    def compact(self, launch: int, finished: Container[str]) -> None:
        """Merge the parts of a launch into one file; parts of unfinished points are dropped.

        Args:
            launch: Which launch.
            finished: Ids of the points that have a record in it.
        """
        folder, whole = self.path / f"launch-{launch}", self.path / f"launch-{launch}.parquet"
        if not folder.is_dir():
            return
        parts = _merge([whole, *sorted(folder.glob("*.parquet"))])
        kept = {key: samples for key, samples in parts.items() if key[0] in finished}
        if kept:
            write_atomic(whole, _encode(kept))
        with storing(folder, "remove"):
            shutil.rmtree(folder)

    def has_parts(self) -> bool:
        """Whether samples of a launch still stand in a part per point."""
        return any(entry.is_dir() for entry in self.path.glob("launch-*"))

    def read(self) -> dict[SampleKey, Samples]:
        """All samples of the run; empty when they were not kept."""
        return _merge(sorted(self.path.glob("**/*.parquet")))


def load_writer() -> None:
    """Import what the first write imports (pyarrow, and through it pandas: half a second)."""
    _encode({})


def _merge(files: Iterable[Path]) -> dict[SampleKey, Samples]:
    merged: dict[SampleKey, Samples] = {}
    for file in files:
        if file.is_file():
            merged |= _decode(file)
    return merged


def _rows(parts: Mapping[SampleKey, Samples]) -> Iterator[tuple[str, int, str, int, float]]:
    for (point_id, launch), samples in parts.items():
        for metric, values in sorted(samples.items()):
            for index, value in enumerate(values):
                yield point_id, launch, metric, index, value


def _encode(parts: Mapping[SampleKey, Samples]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "point_id": pa.string(),
        "launch": pa.int32(),
        "metric": pa.string(),
        "index": pa.int32(),
        "value": pa.float64(),
    }
    columns = list(zip(*_rows(parts), strict=True)) or [()] * len(types)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types.values(), strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, names=list(types)), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _decode(path: Path) -> dict[SampleKey, Samples]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with storing(path, "read"):
            rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except pa.ArrowInvalid as error:
        raise StoreError(f"{path} is not a readable Parquet file: {error}") from error
    found: dict[SampleKey, dict[str, list[float]]] = {}
    for row in sorted(rows, key=lambda row: row["index"]):
        samples = found.setdefault((row["point_id"], row["launch"]), {})
        samples.setdefault(row["metric"], []).append(row["value"])
    return {
        key: {metric: tuple(values) for metric, values in samples.items()}
        for key, samples in found.items()
    }
