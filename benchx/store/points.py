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
_RULES_KEY = b"benchx.row_rules"

ROW_RULES = 3
"""Which rules rows are derived by (`runner.aggregate`): raised with every change of these, so that
a reader derives the rows of an older file anew instead of mixing two meanings."""


@dataclass(frozen=True)
class PointTable:
    """Rows, how many records they were derived from, and by which rules."""

    rows: tuple[Row, ...]
    records: int
    rules: int = ROW_RULES


def write_points(path: Path, table: PointTable) -> None:
    """Replace the file; a column is null in rows that lack it.

    Raises:
        StoreError: When it can't be written; the previous file stays.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in table.rows for name in row))
    columns = {name: _column([row.get(name) for row in table.rows]) for name in names}
    facts = {_COUNT_KEY: table.records, _RULES_KEY: table.rules}
    data = pa.table(columns).replace_schema_metadata(
        {key: str(number).encode() for key, number in facts.items()}
    )
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
    facts = data.schema.metadata or {}
    records, rules = (int(facts.get(key, b"0")) for key in (_COUNT_KEY, _RULES_KEY))
    return PointTable(tuple(data.to_pylist()), records, rules)


def _column(values: Sequence[Any]) -> pa.Array:
    """An Arrow array; an axis that has values of several types in one run becomes text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pa.array([None if value is None else float(value) for value in values])
    if len(kinds) > 1:
        return pa.array([None if value is None else str(value) for value in values])
    return pa.array(values)
