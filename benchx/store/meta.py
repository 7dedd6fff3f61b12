"""`run.json`: what was asked for. Written once when the run starts, never changed.

Launches that were added later stand in a file of their own (`store.extension`); `read_meta` reads
both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from benchx.core.errors import StoreError
from benchx.core.point import Point
from benchx.core.record import SCHEMA
from benchx.store.extension import EXTENSIONS_FILE, Extension, read_extensions
from benchx.store.faults import storing
from benchx.store.plain import plain
from benchx.store.restore import CHANGED, read_document, told
from benchx.store.shape import restored

RUN_FILE = "run.json"


@dataclass(frozen=True)
class PlanEntry:
    """A point and in how many launches it is to be measured."""

    point: Point
    launches: int


def _unfolded(entry: object) -> object:
    """A point's fields stand beside `launches` in the file; its id follows from them."""
    if not isinstance(entry, Mapping):
        return entry
    own = {name: entry[name] for name in ("launches",) if name in entry}
    point = {name: entry[name] for name in entry if name not in ("launches", "point_id")}
    return own | {"point": point}


@dataclass(frozen=True, kw_only=True)
class RunMeta:
    """The request behind a run folder.

    Attributes:
        run_id: Name of the folder.
        scenario: Name of the scenario.
        source: File that the scenario was read from.
        resolved: The scenario in full, after `extends` and `--set`.
        plan: Every point, in plan order. Early runs have `resolved` with its keys sorted, so a plan
            made from it may have another order: this one holds.
        seeds: Seed of each scenario part.
        command: The command line.
        started_at: UTC, ISO 8601.
        benchx_version: Version that planned the run.
    """

    run_id: str
    scenario: str
    source: str
    resolved: Mapping[str, Any]
    plan: tuple[Annotated[PlanEntry, BeforeValidator(_unfolded)], ...]
    seeds: tuple[int, ...]
    command: tuple[str, ...]
    started_at: str
    benchx_version: str
    schema: int = SCHEMA

    def extended(self, extension: Extension) -> RunMeta:
        """The same request with more launches."""
        plan = tuple(
            replace(entry, launches=max(entry.launches, extension.launches[entry.point.part]))
            for entry in self.plan
        )
        return replace(self, plan=plan, resolved=extension.resolved)

    def launches(self) -> int:
        """Most launches of any point."""
        return max((entry.launches for entry in self.plan), default=0)

    def pairs(self) -> int:
        """How many records a complete run holds."""
        return sum(entry.launches for entry in self.plan)

    def axes(self) -> tuple[str, ...]:
        """Names of all axes of the plan, in the order of their first appearance."""
        return tuple(dict.fromkeys(name for entry in self.plan for name in entry.point.params))

    def points(self) -> dict[str, Point]:
        """Points by id."""
        return {entry.point.point_id: entry.point for entry in self.plan}

    def to_json(self) -> dict[str, Any]:
        """Plain data; `store.shape.restored` makes an equal value of it."""
        plan = [
            entry.point.to_json() | {"point_id": entry.point.point_id, "launches": entry.launches}
            for entry in self.plan
        ]
        data = {**vars(self), "plan": plan}
        return {name: plain(value) for name, value in data.items()}


def encode_meta(meta: RunMeta) -> bytes:
    """The bytes of run.json; keys unsorted: the order of a scenario's axes is that of its plan."""
    return json.dumps(meta.to_json(), indent=1, allow_nan=False).encode() + b"\n"


def read_meta(folder: Path) -> RunMeta:
    """Read run.json of a run folder, and the launches that were added to it.

    Raises:
        StoreError: When the folder is not a run, was written by a newer benchx, or is damaged.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        raise StoreError(f"{folder} is not a run folder: it has no {RUN_FILE}")
    with storing(path, "read"):
        content = path.read_bytes()
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not a run: {told(error)}", hint=CHANGED) from error
    meta = read_document(document, "run", partial(restored, form=RunMeta), where=str(path))
    extensions = read_extensions(folder)
    for number, extension in enumerate(extensions, start=1):
        if len(extension.launches) != len(meta.seeds):
            where = f"{folder / EXTENSIONS_FILE}:{number}"
            raise StoreError(
                f"{where}: it has launches of {len(extension.launches)} parts, "
                f"but the run has {len(meta.seeds)}",
                hint=CHANGED,
            )
    return reduce(RunMeta.extended, extensions, meta)
