"""CUDA or HIP events around each call, many calls in flight; with a spin, the GPU's default."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure import gpu
from benchx.measure.cache import ColdCache
from benchx.measure.sampling import (
    SampleBatch,
    TimerUnsupported,
    gpu_call_time_ms,
    restore,
)
from benchx.stats.summary import median

if TYPE_CHECKING:
    import torch

_SPIN_MS = (0.05, 20.0)
"""Least and longest time the device is kept busy before a call."""

_EMPTY_SHARE = 1.5
"""Below so many times an empty pair of events nothing was between them; a kernel takes longer."""

_EMPTY_PAIRS = 8


class EventTimer:
    """Events around each call; the host waits once per batch, never between calls.

    Per call: reset, cache flush, start event, `run`, end event. One untimed call opens a batch
    (unless it counts as `opened`):
    the first call after another backend ran is slower on the host, and it keeps the device busy
    while the host gets ahead. The host stays ahead only as long as submitting a call takes less
    time than flush and call take on the device; otherwise the device waits within the call and
    the sample holds launch gaps. That is not guessed: whether the start event had already
    happened when `run` returned is counted in `SampleBatch.late`.

    With `spin` (timer `events_spin`) the device is kept busy before the start event for longer
    than the host takes to submit the call, so that device time has no launch gaps in it: what
    the kernels take back to back, as in a graph or behind other work. It is a different
    question, hence a different timer name in the record. The spin follows what the host took, but
    no more than a whole lone call takes: a call that waits for the device inside waits for the
    spin too, and each spin would make the next one longer. Work that the host does in `run` passes
    during the spin and costs nothing, so calls in which it has a share are for the host's clock;
    a batch whose events lie as close as with no call between them is noted `no_device_work`.

    Resolution of the events is about 0.5 us by the CUDA documentation, so calls of a few
    microseconds belong to the graph timer.

    Args:
        device: The GPU.
        cache: Flushed before each call; None measures warm.
        spin: Keep the device busy while a call is submitted.
    """

    synchronous = False

    def __init__(self, device: Device, cache: ColdCache | None, *, spin: bool = False) -> None:
        self.name = "events_spin" if spin else "events"
        self._device, self._cache = device, cache
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._spin = _Spin(device) if spin else None
        # Calls are kept, so that their ids stay theirs.
        self._lone_ms: dict[int, tuple[PreparedCall, float]] = {}

    def sample(
        self, calls: Sequence[PreparedCall], count: int, *, opened: bool = False
    ) -> SampleBatch:
        """See `Timer.sample`."""
        import torch

        _, lone_ms = self._lone_ms.get(id(calls[0]), (None, math.inf))
        with torch.cuda.device(self._device.index):
            self._grow_events(count)
            if not opened:
                self._submit(calls[-1], None)
            host_ns, late = [], 0
            for index in range(count):
                start, end = self._events[index]
                host_ns.append(self._submit(calls[index % len(calls)], start))
                if self._spin is not None:
                    self._spin.cover(min(host_ns[-1] / 1e6, lone_ms))
                end.record()
                late += gpu.has_happened(start)
            torch.cuda.synchronize()
        device_ms = tuple(gpu.elapsed_ms(start, end) for start, end in self._events[:count])
        return SampleBatch(
            device_time_ms=device_ms,
            host_time_ms=tuple(ns / 1e6 for ns in host_ns),
            late=late,
            notes=self._notes(device_ms),
        )

    def call_time_ms(self, call: PreparedCall, count: int) -> tuple[float, ...]:
        """See `Timer.call_time_ms`."""
        times_ms = gpu_call_time_ms(call, count, device=self._device, cache=self._cache)
        if times_ms:
            self._lone_ms[id(call)] = (call, max(times_ms))
        return times_ms

    def _notes(self, device_ms: tuple[float, ...]) -> tuple[str, ...]:
        """Only behind a spin do events tell: on an idle device they lie as far apart as calls."""
        if self._spin is None or not device_ms:
            return ()
        nothing = median(device_ms) <= _EMPTY_SHARE * self._spin.empty_ms
        return ("no_device_work",) if nothing else ()

    def _submit(self, call: PreparedCall, start: torch.cuda.Event | None) -> int:
        """Queue one call, with `start` just before it; returns the host's nanoseconds in it."""
        restore([call], self._cache)
        if self._spin is not None:
            self._spin.queue()
        if start is not None:
            start.record()
        began_ns = time.perf_counter_ns()
        call.run()
        return time.perf_counter_ns() - began_ns

    def _grow_events(self, count: int) -> None:
        while len(self._events) < count:
            pair = [gpu.timing_event() for _ in range(2)]
            for event in pair:  # torch creates the driver's event at the first record
                event.record()
            self._events.append((pair[0], pair[1]))


class _Spin:
    """A kernel that occupies the device, without touching memory, for as long as asked.

    Attributes:
        empty_ms: What two events read that are queued behind it with nothing between them.
    """

    def __init__(self, device: Device) -> None:
        import torch

        if not gpu.can_spin():
            raise TimerUnsupported(
                "timer events_spin needs torch.cuda._sleep, which this torch lacks",
                hint="use timer: events or graph",
            )
        self._duration_ms = _SPIN_MS[0]
        with torch.cuda.device(device.index):
            self._cycles_per_ms = self._measure_cycles_per_ms()
            self.empty_ms = self._measure_empty_ms()

    def queue(self) -> None:
        """Occupy the current stream for the present duration."""
        gpu.spin(int(self._duration_ms * self._cycles_per_ms))

    def cover(self, host_ms: float) -> None:
        """Make the next spin last twice `host_ms`, within bounds; it shrinks slowly."""
        least, longest = _SPIN_MS
        self._duration_ms = min(longest, max(least, 2 * host_ms, 0.8 * self._duration_ms))

    def _measure_empty_ms(self) -> float:
        import torch

        times_ms = []
        start, end = (gpu.timing_event() for _ in range(2))
        for _ in range(_EMPTY_PAIRS):
            self.queue()
            start.record()
            end.record()
            torch.cuda.synchronize()
            times_ms.append(gpu.elapsed_ms(start, end))
        return median(times_ms[1:])  # the first records also make the driver's events

    @staticmethod
    def _measure_cycles_per_ms() -> float:
        import torch

        cycles = 10_000_000
        start, end = (gpu.timing_event() for _ in range(2))
        for _ in range(2):  # the first one also wakes the clocks
            start.record()
            gpu.spin(cycles)
            end.record()
            torch.cuda.synchronize()
        return cycles / gpu.elapsed_ms(start, end)
