"""What a run says of the deployments behind its serving points: model, GPUs, what may be priced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from benchx.core.record import LaunchRecord
from benchx.store import Run

SERVING = "serving"
"""`kind` of a serving point."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One point's engine as it ran.

    Attributes:
        model: As the scenario names it, else as the engine does; None when neither does.
        gpus: GPUs in use, equal in every launch; None: unknown, 0: none.
        gpus_source: How that is known (`nvml`, `declared`, ...).
        gpu_names: Kinds of GPU, as the driver names them.
        pricing: The scenario's `cost` (`hardware`, `prices`); None: nothing is to be priced.
        slo: Limits of a good request as the scenario writes them (`ttft` -> `2.0s`).
        version: Engine and version as it told (`vllm 0.26.0`), equal in every launch.
        acceptance: Of drafted tokens: `real`, `synthetic` (decreed), `none` (no drafts), or
            `unknown` (nothing tells of any).
        load_format: `dummy` for random weights.
    """

    model: str | None
    gpus: int | None
    gpus_source: str | None
    gpu_names: tuple[str, ...]
    pricing: Mapping[str, Any] | None
    slo: Mapping[str, str]
    version: str | None = None
    acceptance: str | None = None
    load_format: str | None = None


def deployments(run: Run) -> dict[str, Deployment]:
    """Point id -> deployment, for the serving points of a run."""
    records: dict[str, list[LaunchRecord]] = {}
    for record in run.records:
        records.setdefault(record.point_id, []).append(record)
    parts = run.meta.resolved.get("parts") or [run.meta.resolved]
    return {
        entry.point.point_id: _deployment(
            parts[entry.point.part], records.get(entry.point.point_id, [])
        )
        for entry in run.meta.plan
        if entry.point.kind == SERVING
    }


def _deployment(part: Mapping[str, Any], records: Iterable[LaunchRecord]) -> Deployment:
    told = [record.provenance for record in records if record.provenance]
    named = (part.get("engine") or {}).get("model") or _same(one.get("model") for one in told)
    kinds = dict.fromkeys(str(name) for one in told for name in one.get("gpu_names") or ())
    return Deployment(
        version=_same(one.get("version") for one in told),
        acceptance=_same(one.get("acceptance") for one in told),
        load_format=_same(one.get("load_format") for one in told),
        model=_portable(str(named)) if named else None,
        gpus=_same(one.get("gpus") for one in told),
        gpus_source=_same(one.get("gpus_source") for one in told),
        gpu_names=tuple(kinds),
        pricing=part.get("cost"),
        slo={name: str(limit) for name, limit in (part.get("slo") or {}).items() if limit},
    )


def _same(values: Iterable[Any]) -> Any:  # noqa: ANN401 - whatever a record holds
    """The one value of all launches; None when they differ or there is none."""
    kinds = list(dict.fromkeys(values))
    return kinds[0] if len(kinds) == 1 else None


def _portable(model: str) -> str:
    """A name as it is; of an absolute path the last part."""
    return PurePath(model).name if PurePath(model).is_absolute() else model
