"""What every timer offers, and what a batch of samples holds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.errors import BenchxError
from benchx.measure.cache import ColdCache


class TimerUnsupported(BenchxError):
    """This timer can't time this call (say, it must not be captured in a graph)."""


@dataclass(frozen=True, kw_only=True)
class SampleBatch:
    """Samples of one entry, taken back to back.

    Attributes:
        device_time_ms: One figure per sample.
        host_time_ms: The same calls, until `run` returned.
        late: Samples whose call the device may have reached before the host had submitted all
            of it, so that launch gaps are in `device_time_ms`.
        notes: What a reader of the figures must know (`warm_l2`, ...).
    """

    device_time_ms: tuple[float, ...]
    host_time_ms: tuple[float, ...]
    late: int = 0
    notes: tuple[str, ...] = ()


class Timer(Protocol):
    """A way of timing prepared calls.

    Attributes:
        name: What the record says: `events`, `events_spin`, `graph` or `cpu`.
        synchronous: Whether a call is done when `run` returns, so that device, host and call
            time are one and the same figure.
    """

    @property
    def name(self) -> str:
        """See the class."""

    @property
    def synchronous(self) -> bool:
        """See the class."""

    def sample(
        self, calls: Sequence[PreparedCall], count: int, *, opened: bool = False
    ) -> SampleBatch:
        """Take `count` samples, rotating over `calls` (copies of one call; at least one).

        With `opened`, no untimed call comes first: for calls so long that it would tell nothing.
        """

    def call_time_ms(self, call: PreparedCall, count: int) -> tuple[float, ...]:
        """`count` times from submission on an idle device until the device is idle again."""


def restore(calls: Iterable[PreparedCall], cache: ColdCache | None) -> None:
    """Bring about the state in which a sample begins: reset calls, then (if asked) a cold cache."""
    for call in calls:
        if call.reset is not None:
            call.reset()
    if cache is not None:
        cache.flush()


def gpu_call_time_ms(
    call: PreparedCall, count: int, *, device: Device, cache: ColdCache | None
) -> tuple[float, ...]:
    """Milliseconds from submission on an idle GPU until it is idle, called from Python as is.

    The cost of the final synchronisation (a few microseconds) is part of the figure, as it is
    for anybody who waits for one call.
    """
    import torch

    times = []
    for _ in range(count):
        restore([call], cache)
        torch.cuda.synchronize(device.index)
        start_ns = time.perf_counter_ns()
        call.run()
        torch.cuda.synchronize(device.index)
        times.append((time.perf_counter_ns() - start_ns) / 1e6)
    return tuple(times)
