"""`points.parquet`: one row per point, derived from the records and rewritten as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.core.errors import StoreError
from benchx.store.atomic import write_atomic
from benchx.store.faults import storing

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
_COUNT_KEY = b"benchx.records"


@dataclass(frozen=True)
class PointTable:
    """Rows, and how many records they were derived from."""

    rows: tuple[Row, ...]
    records: int


def write_points(path: Path, table: PointTable) -> None:
    """Replace the file; a column is null in rows that lack it.

    Raises:
        StoreError: When it can't be written; the previous file stays.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in table.rows for name in row))
    columns = {name: _column([row.get(name) for row in table.rows]) for name in names}
    data = pa.table(columns).replace_schema_metadata({_COUNT_KEY: str(table.records).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, compression="zstd")
    write_atomic(path, sink.getvalue().to_pybytes())


def read_points(path: Path) -> PointTable:
    """Read what `write_points` wrote.

    Raises:
        StoreError: When it is not a readable Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with storing(path, "read"):
            data = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise StoreError(f"{path} is not a readable Parquet file: {error}") from error
    count = (data.schema.metadata or {}).get(_COUNT_KEY, b"0")
    return PointTable(tuple(data.to_pylist()), int(count))


def _column(values: Sequence[Any]) -> pa.Array:
    """An Arrow array; an axis that has values of several types in one run becomes text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pa.array([None if value is None else float(value) for value in values])
    if len(kinds) > 1:
        return pa.array([None if value is None else str(value) for value in values])
    return pa.array(values)
