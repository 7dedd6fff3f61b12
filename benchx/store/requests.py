"""Raw requests of a load: lines while it runs, one Parquet file once it is over.

A thread writes, so that the load never waits for a disk; at most a second of requests is lost when
the process is killed. What was written stays readable in both forms.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchx.core.errors import StoreError
from benchx.store.atomic import write_atomic
from benchx.store.faults import storing
from benchx.store.journal import read_entries
from benchx.store.plain import to_line

REQUESTS_FOLDER = "requests"
SYNC_S = 1.0


class RequestLog:
    """Takes one row per request; use as a context manager.

    Args:
        folder: The run folder.
        name: Name of the file without its ending; no two attempts may share one.

    Raises:
        StoreError: The file can't be made, or exists.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / REQUESTS_FOLDER
        with storing(self._folder, "create"):
            self._folder.mkdir(exist_ok=True)
        self.lines = self._folder / f"{name}.jsonl"
        self.table = self._folder / f"{name}.parquet"
        with storing(self.lines, "create"):
            self._file = self.lines.open("xb")
        self._rows: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._failure: StoreError | None = None
        self._thread = threading.Thread(target=self._work, name="request-log", daemon=True)
        self._thread.start()

    def append(self, row: Mapping[str, Any]) -> None:
        """Have a row written; returns at once."""
        self._rows.put(row)

    def finish(self) -> Path:
        """Write the rest, make the Parquet file, remove the lines; returns the file.

        Raises:
            StoreError: Something could not be written; the lines stay.
        """
        self._end()
        if self._failure is not None:
            raise self._failure
        rows = read_entries(self.lines).items
        if rows:
            write_atomic(self.table, _encode(rows))
            with storing(self.lines, "remove"):
                self.lines.unlink()
        return self.table

    def abandon(self) -> None:
        """Write the rest and leave the lines as they are."""
        self._end()

    def _end(self) -> None:
        self._rows.put(None)
        self._thread.join()
        self._file.close()

    def _work(self) -> None:
        try:
            with storing(self.lines, "write"):
                self._write_all()
        except StoreError as error:
            self._failure = error

    def _write_all(self) -> None:
        """Write rows as they come, sync once a second and at the end."""
        synced_s, dirty = time.monotonic(), False
        while True:
            row = self._next()
            if row:
                self._file.write(to_line(row) + b"\n")
                dirty = True
            if dirty and (not row or time.monotonic() - synced_s > SYNC_S):
                self._file.flush()
                os.fsync(self._file.fileno())
                synced_s, dirty = time.monotonic(), False
            if row is None:
                return

    def _next(self) -> Mapping[str, Any] | None:
        """The next row; an empty one when none came for a while, None at the end."""
        try:
            return self._rows.get(timeout=SYNC_S)
        except queue.Empty:
            return {}


def _encode(rows: tuple[dict[str, Any], ...]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [_cell(row.get(name)) for row in rows] for name in names}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _cell(value: object) -> object:
    """Mappings become JSON text: their keys differ from row to row."""
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else value


def read_requests(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows by file name, of finished and unfinished loads of a run folder.

    Raises:
        StoreError: A file can't be read.
    """
    files = sorted((folder / REQUESTS_FOLDER).glob("*"))
    lines = {file.stem: list(read_entries(file).items) for file in files if file.suffix == ".jsonl"}
    tables = {file.stem: _decode(file) for file in files if file.suffix == ".parquet"}
    return lines | tables


def has_load(folder: Path, name: str) -> bool:
    """Whether rows of one load are there and can be read, finished or not."""
    return any(_is_readable(file) for file in _files(folder, name))


def _is_readable(file: Path) -> bool:
    """By its footer alone, if it is a table."""
    if file.suffix != ".parquet":
        return file.stat().st_size > 0
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return bool(pq.read_metadata(file).num_rows)
    except (pa.ArrowInvalid, OSError):
        return False


def read_load(folder: Path, name: str) -> list[dict[str, Any]]:
    """Rows of one load.

    Args:
        folder: The run folder.
        name: As given to `RequestLog`.

    Raises:
        StoreError: It is not there or can't be read.
    """
    for file in _files(folder, name):
        return _decode(file) if file.suffix == ".parquet" else list(read_entries(file).items)
    raise StoreError(f"{folder} holds no requests named {name}")


def _files(folder: Path, name: str) -> list[Path]:
    both = [folder / REQUESTS_FOLDER / f"{name}.{ending}" for ending in ("parquet", "jsonl")]
    return [file for file in both if file.is_file()]


def _decode(file: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with storing(file, "read"):
            rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    except pa.ArrowInvalid as error:
        raise StoreError(f"{file} is not a readable Parquet file: {error}") from error
    return rows
