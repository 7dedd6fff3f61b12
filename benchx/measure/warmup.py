"""Compile, tune and settle before timing, and say how long compiling took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.gpu import synchronize
from benchx.measure.sampling import restore
from benchx.stats.summary import median

GPU_MIN_TIME_S, CPU_MIN_TIME_S = 0.05, 0.01
"""An idle GPU takes tens of milliseconds to raise its clocks, a CPU less than a few."""

_WINDOW = 3
_TOLERANCE = 0.2
_MAX_CALLS = 10_000


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """How a call behaved before it was timed.

    Attributes:
        first_call_s: The very first call, until the device was idle: JIT, autotuning, loading.
        steady_call_s: Median of the last three calls (fewer when time ran out).
        calls: Calls made, the first included.
        steady: Whether they agreed; False means that the time limit ended the warm-up.
    """

    first_call_s: float
    steady_call_s: float
    calls: int
    steady: bool

    @property
    def compile_time_s(self) -> float:
        """First call minus a steady call, never below 0."""
        return max(0.0, self.first_call_s - self.steady_call_s)


def warm_up(call: PreparedCall, device: Device, *, max_time_s: float = 5.0) -> WarmUp:
    """Call until steady.

    Steady means: the last three calls lie within 20 % of the fastest of them, and at least
    50 ms (CPU: 10 ms) went by since the first call. It ends unsteady at `max_time_s` after the
    first call, but always after one more call, since without it there is nothing to take the
    first call's excess over.
    """
    min_time_s = GPU_MIN_TIME_S if device.is_gpu else CPU_MIN_TIME_S
    return until_steady(
        lambda: _timed_call_s(call, device), min_time_s=min_time_s, max_time_s=max_time_s
    )


def until_steady(timed: Callable[[], float], *, min_time_s: float, max_time_s: float) -> WarmUp:
    """The rule of `warm_up` over any `timed` that makes one call and returns its seconds."""
    first_call_s = timed()
    times: list[float] = []
    spent_s = 0.0
    steady = False
    while not steady:
        times.append(timed())
        spent_s += times[-1]
        last = times[-_WINDOW:]
        agree = len(last) == _WINDOW and max(last) <= min(last) * (1 + _TOLERANCE)
        steady = agree and spent_s >= min_time_s
        if spent_s >= max_time_s or len(times) == _MAX_CALLS:
            break
    return WarmUp(
        first_call_s=first_call_s,
        steady_call_s=median(times[-_WINDOW:]),
        calls=1 + len(times),
        steady=steady,
    )


def _timed_call_s(call: PreparedCall, device: Device) -> float:
    restore([call], None)
    synchronize(device)
    began_s = time.perf_counter()
    call.run()
    synchronize(device)
    return time.perf_counter() - began_s
