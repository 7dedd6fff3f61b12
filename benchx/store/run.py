"""Reading a run folder; safe while another process writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from benchx.core.errors import StoreError
from benchx.core.outcome import Outcome
from benchx.core.record import LaunchRecord
from benchx.store.journal import Entries, read_entries
from benchx.store.launches import LaunchInfo, latest
from benchx.store.meta import RunMeta, read_meta
from benchx.store.migrations import Kind
from benchx.store.points import ROW_RULES, PointTable, Row, read_points
from benchx.store.restore import ValueT, read_document
from benchx.store.samples import SampleFolder, SampleKey, Samples
from benchx.store.shape import restored, restored_record

RECORDS_FILE = "records.jsonl"
LAUNCHES_FILE = "launches.jsonl"
POINTS_FILE = "points.parquet"
SAMPLES_FOLDER = "samples"
LOGS_FOLDER = "logs"


_NO_POINTS = PointTable((), -1)


class RunStatus(StrEnum):
    """Where a run stands.

    COMPLETE: every point has a record in every launch (what became of each is its outcome).
    PARTIAL: some are missing; `--resume` measures them.
    FAILED: every record is there, at least one failed and none is ok.
    """

    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder as read.

    Attributes:
        rows: One mapping per point, from points.parquet.
        rows_current: Whether `rows` follow from all of `records` by the present rules (false after
            a hard kill, and for the runs of an older version).
        notes: What a reader must know about the state of the files.
    """

    path: Path
    meta: RunMeta
    launches: tuple[LaunchInfo, ...]
    records: tuple[LaunchRecord, ...]
    rows: tuple[Row, ...]
    rows_current: bool
    notes: tuple[str, ...]

    @property
    def status(self) -> RunStatus:
        """Derived from plan and records."""
        return status_of(self.meta, self.records)

    @property
    def is_unfinished(self) -> bool:
        """Whether records are missing, or samples are not merged yet: `--resume` does either."""
        parts = SampleFolder(self.path / SAMPLES_FOLDER).has_parts()
        return self.status is RunStatus.PARTIAL or parts

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the columns of `rows` that are axes."""
        return self.meta.axes()

    def samples(self) -> dict[SampleKey, Samples]:
        """Raw samples by (point id, launch); empty when they were not kept."""
        return SampleFolder(self.path / SAMPLES_FOLDER).read()


def status_of(meta: RunMeta, records: Sequence[LaunchRecord]) -> RunStatus:
    """Where a run with these records stands."""
    if len(records) < meta.pairs():
        return RunStatus.PARTIAL
    outcomes = {record.outcome for record in records}
    if Outcome.OK not in outcomes and any(outcome.is_failure for outcome in outcomes):
        return RunStatus.FAILED
    return RunStatus.COMPLETE


def read_run(path: Path) -> Run:
    """Read a run folder.

    Raises:
        StoreError: When it is not a run, or a file in it is corrupt (says which line).
    """
    meta = read_meta(path)
    record_lines = _entries(path / RECORDS_FILE)
    launch_lines = _entries(path / LAUNCHES_FILE)
    records = _parse(path / RECORDS_FILE, record_lines, "record", restored_record)
    _check(path / RECORDS_FILE, meta, records)
    table, unreadable = _derived(path / POINTS_FILE)
    return Run(
        path=path,
        meta=meta,
        launches=latest(_parse(path / LAUNCHES_FILE, launch_lines, "launch", _launch)),
        records=records,
        rows=table.rows,
        rows_current=(table.records, table.rules) == (len(records), ROW_RULES),
        notes=(
            *_torn_notes({RECORDS_FILE: record_lines, LAUNCHES_FILE: launch_lines}),
            *unreadable,
        ),
    )


def _derived(points: Path) -> tuple[PointTable, tuple[str, ...]]:
    """Its rows, and a note where it can't be read: rows follow from the records without it."""
    if not points.is_file():
        return _NO_POINTS, ()
    try:
        return read_points(points), ()
    except StoreError as error:
        return _NO_POINTS, (f"{error.message}; its rows were derived anew from the records",)


def _entries(path: Path) -> Entries:
    return read_entries(path) if path.exists() else Entries((), 0, 0)


def _torn_notes(files: dict[str, Entries]) -> tuple[str, ...]:
    return tuple(
        f"{name} ends in a line that was cut short ({entries.torn_bytes} bytes); it is ignored"
        for name, entries in files.items()
        if entries.torn_bytes
    )


_launch = partial(restored, form=LaunchInfo)


def _parse(
    path: Path, entries: Entries, kind: Kind, build: Callable[[Mapping[str, Any]], ValueT]
) -> tuple[ValueT, ...]:
    lines = enumerate(entries.items, start=1)
    return tuple(
        read_document(item, kind, build, where=f"{path}:{number}") for number, item in lines
    )


def _check(path: Path, meta: RunMeta, records: Sequence[LaunchRecord]) -> None:
    known = meta.points()
    seen: dict[SampleKey, int] = {}
    for number, record in enumerate(records, start=1):
        if record.point_id not in known:
            raise StoreError(f"{path}:{number}: point {record.point_id!r} is not in the plan")
        key = (record.point_id, record.launch)
        if key in seen:
            raise StoreError(
                f"{path}:{number}: launch {record.launch} of point {record.point_id} "
                f"is already on line {seen[key]}"
            )
        seen[key] = number
