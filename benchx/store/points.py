"""`points.parquet`: one row per point, derived from the records and rewritten as a whole.

The schema's metadata hold what the columns can't: `benchx.records` (how many the rows were derived
from), `benchx.row_rules`, `benchx.axes` (JSON list of the columns that are axes) and `benchx.types`
(JSON, column -> type of each of its values, for columns of several types, stored as text).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
_AXES_KEY = b"benchx.axes"
_TYPES_KEY = b"benchx.types"

ROW_RULES = 3
"""Which rules rows are derived by (`runner.aggregate`): raised with every change of these, so that
a reader derives the rows of an older file anew instead of mixing two meanings."""


@dataclass(frozen=True)
class PointTable:
    """Rows, and where they are from.

    Attributes:
        records: How many records they were derived from.
        rules: By which rules.
        axes: Columns that are axes.
    """

    rows: tuple[Row, ...]
    records: int
    rules: int = ROW_RULES
    axes: tuple[str, ...] = ()


def write_points(path: Path, table: PointTable) -> None:
    """Replace the file; a column is null in rows that lack it.

    Raises:
        StoreError: When it can't be written; the previous file stays.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in table.rows for name in row))
    values = {name: [row.get(name) for row in table.rows] for name in names}
    facts: dict[bytes, object] = {
        _COUNT_KEY: table.records,
        _RULES_KEY: table.rules,
        _AXES_KEY: table.axes,
        _TYPES_KEY: {name: _types(column) for name, column in values.items() if _is_mixed(column)},
    }
    data = pa.table({name: _column(column) for name, column in values.items()})
    data = data.replace_schema_metadata(
        {key: json.dumps(fact).encode() for key, fact in facts.items()}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, compression="zstd")
    write_atomic(path, sink.getvalue().to_pybytes())


def read_points(path: Path) -> PointTable:
    """Read what `write_points` wrote; every value has the type it was written with.

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
    facts = {
        key: json.loads(fact)
        for key, fact in (data.schema.metadata or {}).items()
        if key in (_COUNT_KEY, _RULES_KEY, _AXES_KEY, _TYPES_KEY)
    }
    rows = data.to_pylist()
    for name, types in facts.get(_TYPES_KEY, {}).items():
        for row, kind in zip(rows, types, strict=True):
            row[name] = None if kind is None else _FROM_TEXT[kind](row[name])
    return PointTable(
        tuple(rows),
        facts.get(_COUNT_KEY, 0),
        facts.get(_RULES_KEY, 0),
        tuple(facts.get(_AXES_KEY, ())),
    )


_FROM_TEXT: Mapping[str, Callable[[str], Any]] = {
    "bool": "True".__eq__,
    "float": float,
    "int": int,
    "str": str,
}


def _kinds(values: Sequence[Any]) -> set[type]:
    return {type(value) for value in values if value is not None}


def _is_mixed(values: Sequence[Any]) -> bool:
    """Whether no Arrow type holds all of them; whole numbers among floats are floats."""
    kinds = _kinds(values)
    return len(kinds) > 1 and kinds != {int, float}


def _types(values: Sequence[Any]) -> list[str | None]:
    return [None if value is None else type(value).__name__ for value in values]


def _column(values: Sequence[Any]) -> pa.Array:
    """An Arrow array; of values of several types it holds their text."""
    import pyarrow as pa

    kinds = _kinds(values)
    if kinds == {list}:
        return pa.array(values, pa.list_(pa.string()))
    if kinds == {int, float}:
        return pa.array([None if value is None else float(value) for value in values])
    if len(kinds) > 1:
        return pa.array([None if value is None else str(value) for value in values])
    return pa.array(values)
