"""When requests start: arrival processes of an open loop, as seconds after the start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchx.core.errors import UsageError

Arrival = Literal["poisson", "constant", "gamma"]


@dataclass(frozen=True, kw_only=True)
class OpenLoop:
    """Requests start at a rate, whatever the server does.

    Attributes:
        rate_req_s: Requests per second.
        arrival: `poisson`; `constant`: evenly spaced; `gamma`: gaps of a gamma distribution.
        burstiness: Shape of the gamma distribution: 1 is Poisson, below is burstier, above is
            smoother. As in `vllm bench serve`.
        ramp_s: Seconds in which the rate grows linearly from `ramp_from_req_s`; 0 for no ramp.
        ramp_from_req_s: Rate at the start of the ramp.
    """

    rate_req_s: float
    arrival: Arrival = "poisson"
    burstiness: float = 1.0
    ramp_s: float = 0.0
    ramp_from_req_s: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.rate_req_s < math.inf) or not 0 < self.burstiness < math.inf:
            raise UsageError("rate and burstiness must be above zero")
        if self.ramp_s < 0 or self.ramp_from_req_s < 0:
            raise UsageError("a ramp can't have a negative length or rate")


def starts_s(loop: OpenLoop, count: int, seed: int) -> tuple[float, ...]:
    """Start times of `count` requests, ascending; the first is the first arrival after 0.

    A process of rate 1 is drawn and its time is bent by the inverse of the integrated rate
    (Cinlar's method), which is exact for Poisson and keeps the shape of the others.
    """
    draw = np.random.default_rng(seed)
    if loop.arrival == "constant":
        units = np.arange(count, dtype=np.float64)
    elif loop.arrival == "gamma":
        units = np.cumsum(draw.gamma(loop.burstiness, 1 / loop.burstiness, count))
    else:
        units = np.cumsum(draw.exponential(1.0, count))
    return tuple(_when(loop, float(unit)) for unit in units)


def starts_within(loop: OpenLoop, duration_s: float, seed: int) -> tuple[float, ...]:
    """Start times before the end of a load: those that `starts_s` gives to so many."""
    count = 16 + int(duration_s * loop.rate_req_s)
    while (times := starts_s(loop, count, seed))[-1] < duration_s:
        count *= 2
    return tuple(time_s for time_s in times if time_s < duration_s)


def _when(loop: OpenLoop, unit: float) -> float:
    """The time at which the integral of the rate reaches `unit`."""
    if loop.ramp_s == 0:
        return unit / loop.rate_req_s
    low, high, length = loop.ramp_from_req_s, loop.rate_req_s, loop.ramp_s
    in_ramp = (low + high) / 2 * length
    if unit >= in_ramp:
        return length + (unit - in_ramp) / high
    slope = (high - low) / length
    # The root of low * t + slope * t^2 / 2 = unit, in the form that loses no digits.
    return 2 * unit / (low + math.sqrt(low * low + 2 * slope * unit)) if unit else 0.0


def scaled_starts_s(times_s: Sequence[float]) -> tuple[float, ...]:
    """Start times of a trace: ascending and counted from its first entry.

    Raises:
        UsageError: They are not finite or not in order.
    """
    if not times_s:
        return ()
    if not all(map(math.isfinite, times_s)) or list(times_s) != sorted(times_s):
        raise UsageError("the times of a trace must be finite and in order")
    return tuple(time_s - times_s[0] for time_s in times_s)
