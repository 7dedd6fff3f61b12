"""`extensions.jsonl`: launches that were added to a run after `run.json` was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchx.core.record import SCHEMA
from benchx.store.journal import Journal, read_entries
from benchx.store.plain import plain
from benchx.store.restore import read_document
from benchx.store.shape import restored

EXTENSIONS_FILE = "extensions.jsonl"


@dataclass(frozen=True, kw_only=True)
class Extension:
    """One time that launches were added.

    Attributes:
        launches: Launches of each scenario part from now on.
        resolved: The scenario in full, with these launches.
        command: The command line that asked for them.
        added_at: UTC, ISO 8601.
        benchx_version: Version that added them.
    """

    launches: tuple[int, ...]
    resolved: Mapping[str, Any]
    command: tuple[str, ...]
    added_at: str
    benchx_version: str
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Plain data; `store.shape.restored` makes an equal value of it."""
        return {name: plain(value) for name, value in asdict(self).items()}


def read_extensions(folder: Path) -> tuple[Extension, ...]:
    """Those of a run folder, in the order in which they were added.

    Raises:
        StoreError: When one is damaged or was written by a newer benchx.
    """
    path = folder / EXTENSIONS_FILE
    if not path.is_file():
        return ()
    lines = enumerate(read_entries(path).items, start=1)
    build = partial(restored, form=Extension)
    return tuple(
        read_document(item, "extension", build, where=f"{path}:{number}") for number, item in lines
    )


def append_extension(folder: Path, extension: Extension) -> None:
    """Add a line; the caller holds the lock of the run.

    Raises:
        StoreError: When it can't be written.
    """
    journal = Journal(folder / EXTENSIONS_FILE)
    try:
        journal.cut_torn_end()
        journal.append(extension.to_json())
    finally:
        journal.close()
