"""The writing end of a run folder: one process at a time, each record safe before the next."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from benchx.core.errors import StoreError
from benchx.core.record import LaunchRecord
from benchx.store.atomic import write_atomic
from benchx.store.extension import Extension, append_extension
from benchx.store.faults import storing
from benchx.store.journal import Journal
from benchx.store.launches import LaunchInfo, latest
from benchx.store.meta import RUN_FILE, RunMeta, encode_meta
from benchx.store.points import PointTable, Row, write_points
from benchx.store.run import (
    LAUNCHES_FILE,
    LOGS_FOLDER,
    POINTS_FILE,
    RECORDS_FILE,
    SAMPLES_FOLDER,
    read_run,
)
from benchx.store.samples import SampleFolder, SampleKey

_NAME_ATTEMPTS = 8


class RunWriter:
    """Holds the lock of a run folder and appends to it; use `create` or `resume`, then close.

    Attributes:
        path: The folder.
        meta: What was asked for.
        notes: What `resume` had to put right, and whether launches were added.
    """

    def __init__(
        self, path: Path, meta: RunMeta, records: Sequence[LaunchRecord], notes: Sequence[str]
    ) -> None:
        import pyarrow.parquet  # noqa: F401 - takes a second, which the first record must not wait

        self.path, self.meta, self.notes = path, meta, tuple(notes)
        self._records = {(record.point_id, record.launch): record for record in records}
        self._infos: tuple[LaunchInfo, ...] = ()
        self._extension: Extension | None = None
        self._samples = SampleFolder(path / SAMPLES_FOLDER)
        self._journal = Journal(path / RECORDS_FILE)
        try:
            self._launches = Journal(path / LAUNCHES_FILE)
        except StoreError:
            self._journal.close()
            raise

    @classmethod
    def create(cls, out_dir: Path, meta: RunMeta) -> Self:
        """Make a new folder under `out_dir`; `meta.run_id` is replaced by its name.

        Raises:
            StoreError: When the folder can't be made or written.
        """
        path = _new_folder(out_dir, meta.scenario, datetime.now(UTC))
        meta = replace(meta, run_id=path.name)
        with storing(path, "create"):
            (path / SAMPLES_FOLDER).mkdir()
            (path / LOGS_FOLDER).mkdir()
        write_atomic(path / RUN_FILE, encode_meta(meta))
        return cls(path, meta, (), ())

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Continue an existing folder; lines that were cut short are removed and noted.

        Raises:
            StoreError: When it is not a run, is corrupt, or another process writes it.
        """
        before = read_run(path)
        writer = cls(path, before.meta, before.records, ())
        try:
            torn = [journal.cut_torn_end() for journal in (writer._journal, writer._launches)]
            # Read again under the lock: another writer may have ended between read and lock.
            run = read_run(path)
            logs = path / LOGS_FOLDER
            with storing(logs, "create"):  # git and some archives leave empty folders out
                logs.mkdir(exist_ok=True)
        except StoreError:
            writer.close()
            raise
        writer._records = {(record.point_id, record.launch): record for record in run.records}
        writer._infos = run.launches
        writer.notes = tuple(
            f"{name}: an unfinished last line ({size} bytes) was cut off"
            for name, size in zip((RECORDS_FILE, LAUNCHES_FILE), torn, strict=True)
            if size
        )
        return writer

    def extend(self, extension: Extension) -> None:
        """Add launches to the plan; it is written with the first record or worker that follows.

        So a run that can't go on here after all stays as it was.
        """
        before, self.meta = self.meta.launches(), self.meta.extended(extension)
        self._extension = extension
        self.notes += (f"launches were added: {before} before, now {self.meta.launches()}",)

    @property
    def records(self) -> tuple[LaunchRecord, ...]:
        """All records until now, in the order they were written."""
        return tuple(self._records.values())

    @property
    def launches(self) -> tuple[LaunchInfo, ...]:
        """Every worker process until now."""
        return self._infos

    def finished(self) -> frozenset[SampleKey]:
        """(point id, launch) of every record; none of these is measured again."""
        return frozenset(self._records)

    def log_path(self, launch: int) -> Path:
        """Where the workers of a launch write what they print."""
        return self.path / LOGS_FOLDER / f"launch-{launch}.log"

    def append(self, record: LaunchRecord) -> None:
        """Write the samples, then the record line; both are on the disk on return.

        Raises:
            StoreError: When the disk refuses, or the pair has a record already.
        """
        self._write_extension()
        key = (record.point_id, record.launch)
        if key in self._records:
            raise StoreError(f"{self.path}: launch {key[1]} of point {key[0]} has a record already")
        self._samples.write_part(record)
        line = record.to_json()
        del line["samples"]
        self._journal.append(line)
        self._records[key] = replace(record, samples={})

    def append_launch(self, info: LaunchInfo) -> None:
        """Write what is known of a worker process; a later line for the same one replaces it."""
        self._write_extension()
        self._launches.append(info.to_json())
        self._infos = latest((*self._infos, info))

    def _write_extension(self) -> None:
        if self._extension is not None:
            append_extension(self.path, self._extension)
            self._extension = None

    def finish_launch(self, launch: int) -> None:
        """Merge the sample files of a launch."""
        done = {point_id for point_id, of_launch in self._records if of_launch == launch}
        self._samples.compact(launch, done)

    def write_points(self, rows: Sequence[Row]) -> None:
        """Replace points.parquet by rows that were derived from all records until now."""
        table = PointTable(tuple(rows), len(self._records), axes=self.meta.axes())
        write_points(self.path / POINTS_FILE, table)

    def close(self) -> None:
        """Release the lock."""
        for journal in (self._launches, self._journal):
            with suppress(OSError):
                journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _new_folder(out_dir: Path, scenario: str, now: datetime) -> Path:
    """`<scenario>-<UTC time>-<random>`; never one that exists."""
    with storing(out_dir, "create"):
        out_dir.mkdir(parents=True, exist_ok=True)
    for _ in range(_NAME_ATTEMPTS):
        path = out_dir / f"{scenario}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        with storing(path, "create"):
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise StoreError(f"no free name for a run of {scenario} in {out_dir}")
