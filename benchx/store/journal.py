"""Append-only files of JSON lines: one writer, synced line by line, a torn end tolerated."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchx.core.errors import StoreError
from benchx.store.faults import storing
from benchx.store.plain import to_line
from benchx.store.restore import CHANGED


@dataclass(frozen=True)
class Entries:
    """What a journal holds.

    Attributes:
        items: One mapping per complete line.
        end_bytes: Offset behind the last complete line.
        torn_bytes: Bytes behind it: a line that was being written when its writer died.
    """

    items: tuple[dict[str, Any], ...]
    end_bytes: int
    torn_bytes: int


def read_entries(path: Path) -> Entries:
    """All complete lines of a journal.

    Raises:
        StoreError: When the file can't be read, or a complete line is not a JSON object.
    """
    with storing(path, "read"):
        content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    lines = content[:end].split(b"\n")[:-1]
    items = tuple(_parse(path, number, line) for number, line in enumerate(lines, start=1))
    return Entries(items, end, len(content) - end)


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        item = json.loads(line)  # orjson makes floats of ints beyond 64 bits
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, number) from error
    if not isinstance(item, dict):
        raise _corrupt(path, number)
    return item


def _corrupt(path: Path, number: int) -> StoreError:
    return StoreError(f"{path}:{number}: this line is not a JSON object", hint=CHANGED)


class Journal:
    """The writing end of a journal; holds an exclusive lock until closed.

    Args:
        path: The file; created when absent.

    Raises:
        StoreError: When the file can't be opened or another process is writing it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with storing(path, "write"):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise StoreError(
                f"{path.parent} is being written by another benchx process",
                hint="wait for it to end, or stop it first",
            ) from error
        except OSError as error:  # Lustre, unless mounted with `flock`, and some shares
            os.close(self._file)
            raise StoreError(
                f"can't lock {path}: {error.strerror}",
                hint="its file system has no locks; choose a folder on another one with --out",
            ) from error

    def cut_torn_end(self) -> int:
        """Remove a line that was never completed; returns how many bytes that were."""
        entries = read_entries(self.path)
        if entries.torn_bytes:
            with storing(self.path, "write"):
                os.ftruncate(self._file, entries.end_bytes)
                os.fsync(self._file)
        return entries.torn_bytes

    def append(self, item: Mapping[str, Any]) -> None:
        """Write one line and sync it to the disk.

        Raises:
            StoreError: When it can't be written; the lines before it are untouched.
        """
        line = to_line(item) + b"\n"
        with storing(self.path, "write"):
            start = os.fstat(self._file).st_size
            try:
                self._write(line)
            except OSError:
                # Half a line may be on the disk (it filled up): take it back if that is possible.
                with suppress(OSError):
                    os.ftruncate(self._file, start)
                raise

    def _write(self, line: bytes) -> None:
        written = 0
        while written < len(line):
            written += os.write(self._file, line[written:])
        os.fsync(self._file)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)
