"""Is the timer right? Our figures beside those of others for work whose duration is known."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.cache import ColdCache
from benchx.measure.ceilings import GPU_CEILING
from benchx.measure.control import copy_call, product_call
from benchx.measure.nvbench import NvbenchAbsent, nvbench_times_ms
from benchx.measure.timers import Timer, make_timer
from benchx.measure.warmup import warm_up
from benchx.stats.summary import median, relative_difference

TOLERANCE = 0.02
"""Largest deviation that passes."""

_SLEEP_MS = 50.0
_CPU_COPY_KIB = 128
"""Both buffers fit in a core's own cache, so that neighbours on the machine can't slow it."""

_TIMEIT_CALLS = 200
_ROUNDS = 60


@dataclass(frozen=True, kw_only=True)
class TimerCheck:
    """One comparison; without `theirs_ms` it could not be made, and `reason` says why.

    Attributes:
        name: What was timed.
        ours_ms: By benchx's timer for this device.
        theirs_ms: By `other`, or the known duration.
        other: Who.
        deviation: ours / theirs - 1; where both were taken in turns, its median over the pairs.
        reason: Why there is no comparison.
    """

    name: str
    ours_ms: float
    theirs_ms: float | None
    other: str
    deviation: float | None = None
    reason: str | None = None

    @property
    def passed(self) -> bool | None:
        """Whether the deviation is within 2 %; None when there is none."""
        return None if self.deviation is None else abs(self.deviation) <= TOLERANCE


def calibrate_timer(device: Device) -> list[TimerCheck]:
    """Compare benchx's timer with others on `device`.

    GPU: a copy of 4 GiB and a bf16 8192^3 product against `triton.testing.do_bench` and
    NVBench. CPU: a sleep of known length, and a 128 KiB copy against `timeit`.
    """
    return _gpu_checks(device) if device.is_gpu else _cpu_checks(device)


def compare(name: str, ours_ms: float, theirs_ms: float, other: str) -> TimerCheck:
    """A comparison that could be made."""
    return TimerCheck(
        name=name,
        ours_ms=ours_ms,
        theirs_ms=theirs_ms,
        other=other,
        deviation=relative_difference(ours_ms, theirs_ms),
    )


def _cpu_checks(device: Device) -> list[TimerCheck]:
    timer = make_timer("cpu", device, None)
    sleep = PreparedCall(run=_sleep)
    # A sleep never ends early but is late when the machine is busy: the quickest tells.
    slept_ms = min(timer.sample([sleep], 10).device_time_ms)
    copy = copy_call(device, _CPU_COPY_KIB * 2**10)
    warm_up(copy, device)
    standard = timeit.Timer(copy.run)

    def ours() -> float:
        return min(timer.sample([copy], 5).device_time_ms)

    def theirs() -> float:
        return min(standard.repeat(5, _TIMEIT_CALLS)) * 1e3 / _TIMEIT_CALLS

    return [
        compare(f"sleep of {_SLEEP_MS:g} ms", slept_ms, _SLEEP_MS, "known duration"),
        alternate(f"copy of {_CPU_COPY_KIB} KiB", ours, theirs, other="timeit"),
    ]


def _sleep() -> dict[str, Any]:
    time.sleep(_SLEEP_MS / 1e3)
    return {}


def alternate(
    name: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    *,
    other: str,
    rounds: int = _ROUNDS,
) -> TimerCheck:
    """Both figures in each of `rounds` rounds, in the order AB BA AB ..., compared in pairs.

    The two of a pair are a moment apart, so drift and disturbances that last longer than that
    fall on both; the deviation is the median over the pairs.
    """
    pairs = []
    for index in range(rounds):
        if index % 2:
            second = theirs()
            pairs.append((ours(), second))
        else:
            pairs.append((ours(), theirs()))
    return TimerCheck(
        name=name,
        ours_ms=median([pair[0] for pair in pairs]),
        theirs_ms=median([pair[1] for pair in pairs]),
        other=other,
        deviation=median([relative_difference(*pair) for pair in pairs]),
    )


def _gpu_checks(device: Device) -> list[TimerCheck]:
    timer = make_timer("events", device, ColdCache(device))
    copy_bytes = min(GPU_CEILING.copy_bytes, device.memory_bytes // 8)
    work = {
        "copy": (f"copy of {copy_bytes / 2**30:g} GiB", copy_call(device, copy_bytes)),
        "product": (
            f"{GPU_CEILING.dtype} product {GPU_CEILING.matrix}^3",
            product_call(device, GPU_CEILING.matrix, GPU_CEILING.dtype),
        ),
    }
    nvbench_ms, absent = _nvbench(device)
    checks: list[TimerCheck] = []
    for key, (name, call) in work.items():
        warm_up(call, device)
        checks.append(_against_do_bench(name, call, timer))
        ours_ms = checks[-1].ours_ms
        if absent is None:
            checks.append(compare(name, ours_ms, nvbench_ms[key], "NVBench"))
        else:
            checks.append(_without(name, ours_ms, "NVBench", absent))
    return checks


def _against_do_bench(name: str, call: PreparedCall, timer: Timer) -> TimerCheck:
    def ours() -> float:
        return median(timer.sample([call], 50).device_time_ms)

    try:
        from triton.testing import do_bench
    except ImportError as error:
        return _without(name, ours(), "triton do_bench", f"triton can't be imported: {error}")

    def theirs() -> float:
        return float(do_bench(call.run, return_mode="median"))

    return alternate(name, ours, theirs, other="triton do_bench", rounds=4)


def _nvbench(device: Device) -> tuple[Mapping[str, float], str | None]:
    if device.vendor != "nvidia":
        return {}, "NVBench is for NVIDIA GPUs"
    try:
        return nvbench_times_ms(device), None
    except NvbenchAbsent as absent:
        return {}, str(absent)


def _without(name: str, ours_ms: float, other: str, reason: str) -> TimerCheck:
    return TimerCheck(name=name, ours_ms=ours_ms, theirs_ms=None, other=other, reason=reason)
