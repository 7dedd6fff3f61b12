"""What is known of each worker process that measured: device, environment, ceilings, drift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchx.core.record import SCHEMA


@dataclass(frozen=True, kw_only=True)
class LaunchInfo:
    """One worker process; a launch has several when its worker had to be replaced.

    Written when the worker is ready and again when it has ended; the later line counts.

    Attributes:
        launch: Pass over the plan, from 0.
        worker: Ordinal of the worker process in the run, from 0.
        device: The device as observed (`core.device.Device`).
        environment: Versions of everything that matters.
        ceilings: Measured copy bandwidth and matrix rate of the device.
        control_ms: Times of the control kernel, before and after each group, in order.
        drift: Last control time over the first, minus 1; None when there are fewer than two.
        ended_at: When the worker ended; None when the run was killed before it did.
        ended: How: `complete`, `interrupted`, or why it was replaced.
    """

    launch: int
    worker: int
    started_at: str
    device: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    ceilings: Mapping[str, Any] = field(default_factory=dict)
    control_ms: tuple[float, ...] = ()
    drift: float | None = None
    ended_at: str | None = None
    ended: str | None = None
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Plain data; `store.shape.restored` makes an equal value of it."""
        return asdict(self)


def latest(infos: Iterable[LaunchInfo]) -> tuple[LaunchInfo, ...]:
    """One entry per worker: the last that was written."""
    by_worker = {(info.launch, info.worker): info for info in infos}
    return tuple(by_worker[key] for key in sorted(by_worker))


ABSENT = "absent"
"""What `conditions_of` says of a package that a machine does not have."""

_CONDITIONS = ("code", "method", "benchx", "torch", "triton", "cuda", "hip", "driver", "card")

_NO_CONDITION = ("card id",)
"""Another card of the same kind, set in the same way, may go on with a run."""

_UNKNOWN_WHEN_NONE = ("benchx", "driver")
"""Where null says that it could not be found out; elsewhere it says that it is not there."""


def conditions_of(environment: Mapping[str, Any]) -> dict[str, str]:
    """Software and settings that launches must share to be replicates: field -> value.

    Fields of a mapping are `code benchx`, `card power_limit_w`. What was not recorded is left out.
    """
    found: dict[str, str] = {}
    for name in _CONDITIONS:
        value = environment.get(name)
        if isinstance(value, Mapping):
            inner = {f"{name} {key}": item for key, item in value.items() if item is not None}
            found |= {key: str(item) for key, item in inner.items() if key not in _NO_CONDITION}
        elif value is not None:
            found[name] = str(value)
        elif name in environment and name not in _UNKNOWN_WHEN_NONE:
            found[name] = ABSENT
    return found
