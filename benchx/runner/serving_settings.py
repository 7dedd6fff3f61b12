"""The settings of a serving part as they cross the wire, and what follows for one point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from benchx.core.errors import UsageError
from benchx.core.point import Point
from benchx.runner.spec import Settings
from benchx.scenario.serving_axes import ENGINE_AXES, RATE_AXES, WORKLOAD_AXES
from benchx.scenario.serving_workload import count_setting
from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.session import settings_from
from benchx.serving.load import Chain, LoadPlan
from benchx.serving.load_schedule import (
    Arrival,
    OpenLoop,
    scaled_starts_s,
    starts_s,
    starts_within,
)
from benchx.serving.metrics import Slo
from benchx.serving.request import TimeLimits
from benchx.serving.workloads.base import DATASETS

if TYPE_CHECKING:
    from benchx.scenario import ServingPart


MOST_WARMED = 64
"""Requests that warm up at once for an open loop, of which nobody knows how many overlap."""


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
    """What a point sends.

    Of made-up data an open loop with a duration sends as many requests as start before its end.

    Raises:
        UsageError: None starts before it.
    """
    plain = dict(settings["workload"])
    per_stream = plain.pop("requests_per_stream", None)
    plain |= {name: value for name, value in point.params.items() if name in WORKLOAD_AXES}
    if per_stream is not None:
        plain["requests"] = per_stream * int(point.params["concurrency"])
    loop, duration_s = open_loop(settings, point), settings["load"].get("duration_s")
    counted = count_setting(DATASETS.get(plain["dataset"]).needs)
    if loop is not None and duration_s is not None and counted is not None:
        plain[counted] = len(starts_within(loop, duration_s, settings["seed"]))
        if not plain[counted]:
            raise UsageError(
                f"at a rate of {loop.rate_req_s:g}/s nothing starts within {duration_s:g} s",
                hint="raise load.duration or the rate",
            )
    return plain


def streams_of(settings: Settings, point: Point) -> int:
    """Requests that warm up at once: the concurrency, else what starts in a second."""
    if "concurrency" in point.params:
        return int(point.params["concurrency"])
    loop = open_loop(settings, point)
    return 1 if loop is None else min(max(math.ceil(loop.rate_req_s), 1), MOST_WARMED)


def open_loop(settings: Settings, point: Point) -> OpenLoop | None:
    """The arrivals of a point with a rate; None for a closed loop, and for the times of a trace."""
    load, params = settings["load"], point.params
    rate = next((params[name] for name in RATE_AXES if name in params), None)
    arrival = str(params.get("arrival", load["arrival"]))
    if rate is None or arrival == "trace":
        return None
    return OpenLoop(
        rate_req_s=float(rate),
        arrival=cast(Arrival, arrival),
        burstiness=float(params.get("burstiness", load["burstiness"])),
        ramp_s=float(load.get("ramp_s", 0.0)),
        ramp_from_req_s=float(load["ramp_from"]),
    )


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
    elif (loop := open_loop(settings, point)) is not None:
        starts = starts_s(loop, len(chains), settings["seed"])
    return LoadPlan(
        concurrency=concurrency,
        starts_s=starts,
        ramp_s=float(load.get("ramp_s", 0.0)) if starts is None else 0.0,
        duration_s=load.get("duration_s"),
    )


def data_end_s(settings: Settings, point: Point, plan: LoadPlan, wall_s: float) -> float | None:
    """When the data ended, s, if that was before `load.duration`; else None.

    Args:
        settings: Of the part.
        point: Which one.
        plan: How it was sent.
        wall_s: From the first send to the last end, s.
    """
    limit_s = plan.duration_s
    if limit_s is None:
        return None
    if plan.starts_s is None:
        return wall_s if wall_s < limit_s else None
    loop, count = open_loop(settings, point), len(plan.starts_s)
    goes_on_s = plan.starts_s[-1]
    if loop is not None:
        goes_on_s = starts_s(loop, count + 1, settings["seed"])[-1]
    return plan.starts_s[-1] if goes_on_s < limit_s else None


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
