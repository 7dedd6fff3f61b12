"""The monotonic clock around calls that are done when they return."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from benchx.core.call import PreparedCall
from benchx.measure.cache import ColdCache
from benchx.measure.sampling import SampleBatch, restore

_SAMPLE_NS = 1_000_000
"""A warm sample lasts at least this long: 1 ms is 10 000 times what reading the clock takes."""

_RESOLUTION_NS = 10_000
"""Below it a single call is noted: reading the clock (about 0.1 us) is then over 1 % of it."""

_MAX_INNER = 10_000


class CpuTimer:
    """`perf_counter_ns` around `run`.

    Warm, calls much shorter than a millisecond are repeated inside one sample and the sample is
    their mean (noted `inner_repetitions`). Cold, or when a call must be reset, one sample is
    one call, the cache is flushed before it, and calls under 10 us are noted
    `near_timer_resolution`.

    Args:
        cache: Flushed before each sample; None measures warm.
        wait: Waits for a device that has a part in the calls: each call then begins on an idle
            device and ends when it is idle again.
        clock_ns: Monotonic clock in nanoseconds.
    """

    name = "cpu"
    synchronous = True

    def __init__(
        self,
        cache: ColdCache | None,
        *,
        wait: Callable[[], None] | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._cache, self._wait, self._clock_ns = cache, wait, clock_ns
        self._calibrated: dict[tuple[int, ...], tuple[int, tuple[PreparedCall, ...]]] = {}

    def sample(
        self, calls: Sequence[PreparedCall], count: int, *, opened: bool = False
    ) -> SampleBatch:
        """See `Timer.sample`; no untimed call ever comes first."""
        inner = self._inner_repetitions(calls)
        times = tuple(self._one_sample(calls, index, inner) for index in range(count))
        notes: tuple[str, ...] = ("inner_repetitions",) if inner > 1 else ()
        if inner == 1 and min(times, default=math.inf) * 1e6 < _RESOLUTION_NS:
            notes = ("near_timer_resolution",)
        return SampleBatch(device_time_ms=times, host_time_ms=times, notes=notes)

    def call_time_ms(self, call: PreparedCall, count: int) -> tuple[float, ...]:
        """See `Timer.call_time_ms`; one call per figure, never a mean over repetitions."""
        return tuple(self._one_sample([call], 0, 1) for _ in range(count))

    def _inner_repetitions(self, calls: Sequence[PreparedCall]) -> int:
        if self._cache is not None or any(call.reset is not None for call in calls):
            return 1
        key = tuple(map(id, calls))
        if key not in self._calibrated:  # the calls are kept, so that their ids stay theirs
            self._calibrated[key] = (self._calibrate(calls), tuple(calls))
        return self._calibrated[key][0]

    def _calibrate(self, calls: Sequence[PreparedCall]) -> int:
        inner = 1
        while inner < _MAX_INNER:
            took_ns = self._one_sample(calls, 0, inner) * 1e6 * inner
            if took_ns >= _SAMPLE_NS:
                return inner
            growth = _SAMPLE_NS / max(took_ns, 1)  # aim past the target, at most tenfold a step
            inner = min(_MAX_INNER, inner * 10, math.ceil(inner * growth * 1.2))
        return inner

    def _one_sample(self, calls: Sequence[PreparedCall], index: int, inner: int) -> float:
        """Mean milliseconds of `inner` calls, starting the rotation at `index * inner`."""
        picked = [calls[(index * inner + i) % len(calls)] for i in range(inner)]
        restore(picked, self._cache)
        runs: list[Callable[[], object]] = []
        for call in picked:
            runs += [call.run] if self._wait is None else [call.run, self._wait]
        if self._wait is not None:
            self._wait()
        start_ns = self._clock_ns()
        for run in runs:
            run()
        return (self._clock_ns() - start_ns) / 1e6 / inner
