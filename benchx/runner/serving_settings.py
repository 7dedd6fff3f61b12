"""The settings of a serving part as they cross the wire, and what follows for one point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from benchx.core.errors import UsageError
from benchx.core.point import Point
from benchx.runner.spec import Settings
from benchx.scenario.serving import ENGINE_AXES, WORKLOAD_AXES
from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.session import settings_from
from benchx.serving.load import Chain, LoadPlan
from benchx.serving.load_schedule import Arrival, OpenLoop, scaled_starts_s, starts_s
from benchx.serving.metrics import Slo
from benchx.serving.request import TimeLimits

if TYPE_CHECKING:
    from benchx.scenario import ServingPart


def settings_of(part: ServingPart) -> dict[str, Any]:
    """Plain data of a part."""
    sections = {"engine", "workload", "load", "timeouts", "slo", "search"}
    plain = part.model_dump(include=sections, exclude_none=True)
    plain["engine"]["python"] = list(plain["engine"]["python"])
    return plain | {"seed": part.measure.seed, "launches": part.measure.launches}


def engine_settings(settings: Settings, point: Point) -> EngineSettings:
    """What the engine is started with for a point."""
    swept = {name: value for name, value in point.params.items() if name in ENGINE_AXES}
    return settings_from({**settings["engine"], **swept})


def workload_settings(settings: Settings, point: Point) -> dict[str, Any]:
    """What a point sends."""
    plain = dict(settings["workload"])
    per_stream = plain.pop("requests_per_stream", None)
    plain |= {name: value for name, value in point.params.items() if name in WORKLOAD_AXES}
    if per_stream is not None:
        plain["requests"] = per_stream * int(point.params["concurrency"])
    return plain


def load_plan(settings: Settings, point: Point, chains: Sequence[Chain]) -> LoadPlan:
    """How a point is sent.

    Raises:
        UsageError: The data set has no times for a load by trace.
    """
    load, params = settings["load"], point.params
    concurrency = int(params["concurrency"]) if "concurrency" in params else None
    arrival = str(params.get("arrival", load["arrival"]))
    starts: tuple[float, ...] | None = None
    if arrival == "trace":
        starts = _trace_starts(chains)
    elif "request_rate" in params:
        loop = OpenLoop(
            rate_req_s=float(params["request_rate"]),
            arrival=cast(Arrival, arrival),
            burstiness=float(params.get("burstiness", load["burstiness"])),
            ramp_s=float(load.get("ramp_s", 0.0)),
            ramp_from_req_s=float(load["ramp_from"]),
        )
        starts = starts_s(loop, len(chains), settings["seed"])
    return LoadPlan(
        concurrency=concurrency,
        starts_s=starts,
        ramp_s=float(load.get("ramp_s", 0.0)) if starts is None else 0.0,
        duration_s=load.get("duration_s"),
    )


def _trace_starts(chains: Sequence[Chain]) -> tuple[float, ...]:
    times = [chain[0].intended_at_s for chain in chains]
    known = [time_s for time_s in times if time_s is not None]
    if len(known) < len(times):
        raise UsageError("load.arrival is `trace`, and the data set says no times")
    return scaled_starts_s(known)


def slo_of(settings: Settings) -> Slo:
    """Limits in milliseconds."""
    limits: Mapping[str, float] = settings["slo"]
    return Slo(**{f"{name.removesuffix('_s')}_ms": 1000 * value for name, value in limits.items()})


def time_limits(settings: Settings) -> TimeLimits:
    """Time-outs of every request."""
    return TimeLimits(**settings["timeouts"])
