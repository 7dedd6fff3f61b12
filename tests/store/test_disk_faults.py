"""A disk that fills up, a folder that can't be written: told in one sentence, nothing corrupt."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from benchx.core.errors import StoreError
from benchx.core.record import LaunchRecord
from benchx.store import RunMeta, RunWriter, read_run
from benchx.store.atomic import write_atomic

Build = Callable[..., LaunchRecord]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("may not mount a file system here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def _fill(disk: Path) -> Path:
    """Use up the disk but for less than a page."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


def test_a_disk_that_fills_up_stops_the_run_and_keeps_what_was_measured(
    small_disk: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(small_disk, meta) as writer:
        writer.append(record(0))
        filler = _fill(small_disk)
        with pytest.raises(StoreError, match=r"No space left.*free some space"):
            writer.append(record(1, provenance={"text": "y" * 4096}))
        kept = writer.records
        assert read_run(writer.path).records == kept
    filler.unlink()
    with RunWriter.resume(writer.path) as resumed:
        resumed.append(record(3, 1))
    assert len(read_run(writer.path).records) == len(kept) + 1


def test_half_a_line_on_a_full_disk_is_taken_back(
    tmp_path: Path, meta: RunMeta, record: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.append(record(0))
        journal = writer.path / "records.jsonl"
        before = journal.read_bytes()
        real_write = os.write
        calls = iter([10, None])

        def full(file: int, data: bytes) -> int:
            size = next(calls)
            if size is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real_write(file, data[:size])

        monkeypatch.setattr("benchx.store.journal.os.write", full)
        with pytest.raises(StoreError, match="No space left on device"):
            writer.append(record(1))
        monkeypatch.undo()
        assert journal.read_bytes() == before
        writer.append(record(1))
    assert len(read_run(writer.path).records) == 2


def test_points_that_cannot_be_replaced_stay_as_they_were(
    tmp_path: Path, meta: RunMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunWriter.create(tmp_path, meta) as writer:
        writer.write_points([{"op": "copy"}])

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("benchx.store.atomic.os.fsync", full)
        with pytest.raises(StoreError, match=r"points\.parquet: No space left"):
            writer.write_points([{"op": "other"}])
        monkeypatch.undo()
    assert read_run(writer.path).rows == ({"op": "copy"},)
    assert not list(writer.path.glob(".*.tmp"))


def test_a_file_system_without_locks_is_told_and_leaves_nothing_open(
    tmp_path: Path, meta: RunMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lustre answers so unless it is mounted with `flock`."""

    def refuse(file: int, _how: int) -> None:
        opened.append(file)
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    opened: list[int] = []
    monkeypatch.setattr("benchx.store.journal.fcntl.flock", refuse)
    with pytest.raises(StoreError, match=r"can't lock .*records\.jsonl: .*--out"):
        RunWriter.create(tmp_path, meta)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_folder_that_its_file_system_does_not_sync_is_no_fault_and_a_broken_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real_fsync = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(code, os.strerror(code))
        real_fsync(file)

    monkeypatch.setattr("benchx.store.atomic.os.fsync", fsync)
    refused = nullcontext() if code == errno.EINVAL else pytest.raises(StoreError)
    with refused:
        write_atomic(tmp_path / "x", b"whole")
    assert (tmp_path / "x").read_bytes() == b"whole"


def test_an_out_folder_below_a_file_is_refused(tmp_path: Path, meta: RunMeta) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"can't create .*file/out: Not a directory.*--out"):
        RunWriter.create(tmp_path / "file" / "out", meta)


@pytest.mark.parametrize(
    ("code", "hint"),
    [(errno.EROFS, "--out"), (errno.EACCES, "--out"), (errno.EDQUOT, "free some space")],
)
def test_a_folder_that_refuses_to_be_written_says_what_to_do(
    tmp_path: Path, meta: RunMeta, monkeypatch: pytest.MonkeyPatch, code: int, hint: str
) -> None:
    def refuse(self: Path, *args: object, **named: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=f"{os.strerror(code)}.*{hint}"):
        RunWriter.create(tmp_path, meta)


def test_a_read_only_run_can_be_read_and_a_resume_of_it_is_refused(
    small_disk: Path, meta: RunMeta, record: Build
) -> None:
    with RunWriter.create(small_disk, meta) as writer:
        writer.append(record(0))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert len(read_run(writer.path).records) == 1
    with pytest.raises(StoreError, match=r"Read-only file system.*--out"):
        RunWriter.resume(writer.path)
