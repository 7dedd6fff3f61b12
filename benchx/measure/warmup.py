"""Compile, tune and settle before timing, and say how long compiling took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.gpu import synchronize
from benchx.measure.memory import peak_extra_bytes
from benchx.measure.sampling import restore
from benchx.stats.summary import median

GPU_MIN_TIME_S, CPU_MIN_TIME_S = 0.05, 0.01
"""An idle GPU takes tens of milliseconds to raise its clocks, a CPU less than a few."""

LONG_CALL_S = 2.0
"""Calls that take longer are made as seldom as can be: each of them then serves several ends."""

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
        peak_bytes: `peak_extra_bytes` of the second call, taken where the first one was long;
            None otherwise, and where it is not measured.
    """

    first_call_s: float
    steady_call_s: float
    calls: int
    steady: bool
    peak_bytes: int | None = None

    @property
    def is_long(self) -> bool:
        """Whether a steady call takes longer than `LONG_CALL_S`."""
        return self.steady_call_s > LONG_CALL_S

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
    caller = _Caller(call, device)
    warm = until_steady(caller.timed_s, min_time_s=min_time_s, max_time_s=max_time_s)
    return replace(warm, peak_bytes=caller.peak_bytes)


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


class _Caller:
    """Times lone calls; the memory of the second one is looked at if the first was long."""

    def __init__(self, call: PreparedCall, device: Device) -> None:
        self._call, self._device = call, device
        self._first_s: float | None = None
        self.peak_bytes: int | None = None

    def timed_s(self) -> float:
        """Seconds of one call from an idle device until it is idle again."""
        restore([self._call], None)
        synchronize(self._device)
        began_s = time.perf_counter()
        if self._looks_at_memory():
            self.peak_bytes = peak_extra_bytes(self._call.run, self._device)
        else:
            self._call.run()
        synchronize(self._device)
        took_s = time.perf_counter() - began_s
        self._first_s = took_s if self._first_s is None else self._first_s
        return took_s

    def _looks_at_memory(self) -> bool:
        was_long = self._first_s is not None and self._first_s > LONG_CALL_S
        return was_long and self.peak_bytes is None and self._device.is_gpu
