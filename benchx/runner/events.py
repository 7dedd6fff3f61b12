"""What a worker tells while it works: one JSON line per event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchx.core.record import LaunchRecord
from benchx.core.sources import digests, folders
from benchx.store.plain import to_line
from benchx.store.shape import restored_record


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Which code the worker runs; its first event, sent before anything else is imported.

    Attributes:
        digests: Package -> hash of its sources (`core.sources.digests`).
        folders: Package -> where the worker imports it from; for messages, never stored.
    """

    digests: Mapping[str, str]
    folders: Mapping[str, str]

    @classmethod
    def here(cls) -> Sources:
        """Those of this process."""
        return cls(
            digests=digests(), folders={name: str(folder) for name, folder in folders().items()}
        )


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The worker has its imports and its device."""

    device: Mapping[str, Any]
    environment: Mapping[str, Any]
    ceilings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Something begins that must end within a limit.

    Attributes:
        name: What it is, for messages (`check`, `timing`).
        points: Ids of the points that are to blame if the worker dies or hangs in it.
        limit_s: Seconds after which it counts as hanging.
        shared_s: The limit that several phases share, where `limit_s` is what is left of it.
    """

    name: str
    points: tuple[str, ...]
    limit_s: float
    shared_s: float | None = None


@dataclass(frozen=True)
class Recorded:
    """A point is done."""

    record: LaunchRecord


@dataclass(frozen=True)
class Control:
    """Time of the control kernel."""

    time_ms: float


@dataclass(frozen=True)
class Ceilings:
    """The device's ceilings were measured again; `Ready.ceilings` no longer hold."""

    ceilings: Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """The worker leaves by itself.

    Attributes:
        reason: `complete`, or why another worker must go on (a poisoned device context).
    """

    reason: str


Event = Sources | Ready | Phase | Recorded | Control | Ceilings | Ended


def encode(event: Event) -> bytes:
    """One line, newline included."""
    body = event.record.to_json() if isinstance(event, Recorded) else asdict(event)
    return to_line({"event": type(event).__name__.lower(), "body": body}) + b"\n"


def decode(line: bytes) -> Event:
    """What `encode` wrote; raises ValueError for anything else."""
    try:
        message = json.loads(line)
        kind, body = message["event"], message["body"]
        if kind == "recorded":
            return Recorded(restored_record(body))
        if kind == "phase":
            return Phase(**(body | {"points": tuple(body["points"])}))
        plain: dict[str, type[Sources | Ready | Control | Ceilings | Ended]] = {
            "sources": Sources,
            "ready": Ready,
            "control": Control,
            "ceilings": Ceilings,
            "ended": Ended,
        }
        return plain[kind](**body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an event: {line[:80]!r}") from error
