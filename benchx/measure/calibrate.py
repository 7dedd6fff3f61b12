"""Is the timer right? Our figures beside those of others for work whose duration is known."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.cache import ColdCache
from benchx.measure.ceilings import GPU_CEILING
from benchx.measure.control import copy_call, product_call
from benchx.measure.nvbench import NvbenchAbsent, Pairs, nvbench_pairs
from benchx.measure.pacing import paced_ms, pause
from benchx.measure.timers import Timer, make_timer
from benchx.measure.warmup import warm_up
from benchx.stats.summary import median, relative_difference

TOLERANCE = 0.02
"""Largest deviation that passes."""

_SLEEP_MS = 50.0
_CPU_COPY_KIB = 128
"""Both buffers fit in a core's own cache, so that neighbours on the machine can't slow it."""

_TIMEIT_CALLS = 200
_CPU_ROUNDS, _GPU_ROUNDS = 60, 4


@dataclass(frozen=True, kw_only=True)
class TimerCheck:
    """One comparison; without `theirs_ms` it could not be made, and `reason` says why.

    Attributes:
        name: What was timed.
        ours_ms: By benchx's timer for this device.
        theirs_ms: By `other`, or the known duration.
        other: Who.
        deviation: ours / theirs - 1; where both were taken in turns, its median over the pairs.
        pairs: Milliseconds of each turn, ours and theirs.
        reason: Why there is no comparison.
    """

    name: str
    ours_ms: float
    theirs_ms: float | None
    other: str
    deviation: float | None = None
    pairs: Pairs = ()
    reason: str | None = None

    @property
    def passed(self) -> bool | None:
        """Whether the deviation is within 2 %; None when there is none."""
        return None if self.deviation is None else abs(self.deviation) <= TOLERANCE


@dataclass(frozen=True)
class Verdict:
    """What all comparisons of one piece of work say together.

    The other timers need not agree: NVBench leaves out or avoids what a power limit slows down,
    do_bench does not. So the timer is right where at least one of them says so.

    Attributes:
        passed: Whether one of them is within 2 %; None when nothing could be compared.
        others_apart: How far the slowest of the others is above the quickest, both relative to
            ours; 0 where there is but one.
    """

    passed: bool | None
    others_apart: float

    @property
    def disputed(self) -> bool:
        """Whether the others differ by more than the tolerance from each other."""
        return self.others_apart > TOLERANCE


def verdicts(checks: Sequence[TimerCheck]) -> Mapping[str, Verdict]:
    """Name of the work -> verdict, in order of first appearance."""
    return {name: _verdict([c for c in checks if c.name == name]) for name in _names(checks)}


def _names(checks: Sequence[TimerCheck]) -> Sequence[str]:
    return list(dict.fromkeys(check.name for check in checks))


def _verdict(checks: Sequence[TimerCheck]) -> Verdict:
    ratios = [1 + check.deviation for check in checks if check.deviation is not None]
    if not ratios:
        return Verdict(passed=None, others_apart=0.0)
    passed = any(check.passed for check in checks)
    return Verdict(passed=passed, others_apart=max(ratios) / min(ratios) - 1)


def calibrate_timer(device: Device) -> list[TimerCheck]:
    """Compare benchx's timer with others on `device`.

    It is the timer that a scenario gets which names none. GPU: a copy of 4 GiB and a bf16 8192^3
    product against `triton.testing.do_bench` and NVBench, by turns and with equal pauses. CPU: a
    sleep of known length, and a copy of 128 KiB against `timeit`.
    """
    return _gpu_checks(device) if device.is_gpu else _cpu_checks(device)


def compare(name: str, ours_ms: float, theirs_ms: float, other: str) -> TimerCheck:
    """One figure of each."""
    return compare_pairs(name, [(ours_ms, theirs_ms)], other=other)


def _cpu_checks(device: Device) -> list[TimerCheck]:
    timer = make_timer("auto", device, None)
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
    rounds: int = _CPU_ROUNDS,
) -> TimerCheck:
    """Both figures in each of `rounds` rounds, in the order AB BA AB ..., compared in pairs.

    The two of a pair are a moment apart, so drift and disturbances that last longer than that
    fall on both.
    """
    pairs = []
    for index in range(rounds):
        if index % 2:
            second = theirs()
            pairs.append((ours(), second))
        else:
            pairs.append((ours(), theirs()))
    return compare_pairs(name, pairs, other=other)


def compare_pairs(name: str, pairs: Sequence[tuple[float, float]], *, other: str) -> TimerCheck:
    """Medians of (ours, theirs) and, as the deviation, the median over the pairs' deviations."""
    return TimerCheck(
        name=name,
        ours_ms=median([pair[0] for pair in pairs]),
        theirs_ms=median([pair[1] for pair in pairs]),
        other=other,
        deviation=median([relative_difference(*pair) for pair in pairs]),
        pairs=tuple(pairs),
    )


def _gpu_checks(device: Device) -> list[TimerCheck]:
    pairs, absent = _nvbench(device)
    timer = make_timer("auto", device, ColdCache(device))
    size = GPU_CEILING.within(device)
    work = {
        "copy": (f"copy of {size.copy_bytes / 2**30:g} GiB", copy_call(device, size.copy_bytes)),
        "product": (
            f"{size.dtype} product {size.matrix}^3",
            product_call(device, size.matrix, size.dtype),
        ),
    }
    checks: list[TimerCheck] = []
    for key, (name, call) in work.items():
        checks.append(_against_do_bench(name, call, timer))
        if absent is None:
            checks.append(compare_pairs(name, pairs[key], other="NVBench"))
        else:
            checks.append(_without(name, checks[-1].ours_ms, "NVBench", absent))
    return checks


class _Pausing:
    """Pauses where do_bench clears gradients: before each call, outside of what it times."""

    @property
    def grad(self) -> None:
        """Nothing; setting it pauses."""

    @grad.setter
    def grad(self, _value: None) -> None:
        pause()


def _against_do_bench(name: str, call: PreparedCall, timer: Timer) -> TimerCheck:
    def ours() -> float:
        return paced_ms(call, timer)

    try:
        from triton.testing import do_bench
    except ImportError as error:
        return _without(name, ours(), "triton do_bench", f"triton can't be imported: {error}")

    def theirs() -> float:
        times_ms = do_bench(
            call.run, warmup=5, rep=60, grad_to_none=[_Pausing()], return_mode="all"
        )
        return median(times_ms)

    return alternate(name, ours, theirs, other="triton do_bench", rounds=_GPU_ROUNDS)


def _nvbench(device: Device) -> tuple[Mapping[str, Pairs], str | None]:
    if device.vendor != "nvidia":
        return {}, "NVBench is for NVIDIA GPUs"
    try:
        return nvbench_pairs(device), None
    except NvbenchAbsent as absent:
        return {}, str(absent)


def _without(name: str, ours_ms: float, other: str, reason: str) -> TimerCheck:
    return TimerCheck(name=name, ours_ms=ours_ms, theirs_ms=None, other=other, reason=reason)
