"""Backends take turns, so that drift of the machine falls on all of them alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from benchx.core.call import PreparedCall
from benchx.core.errors import RunFailed
from benchx.measure.sampling import Timer
from benchx.measure.stopping import Stop, StoppingRule
from benchx.stats.summary import median

_BATCH_S = 0.05
"""A batch lasts about this long: many turns per point, and the host waits seldom."""

_MAX_BATCH = 20
_LATE_SHARE = 0.1
"""Above this share of late samples a figure is `host_bound`."""

_WAITED = 1.5
"""So many times the time of a whole lone call is more than submitting it can take."""

_CALL_TIME_SHARE = 5
"""One call-time sample for each so many device-time samples."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of one entry in this launch.

    Attributes:
        samples: `device_time_ms`, `host_time_ms` and `call_time_ms` -> samples.
        stop: Why sampling ended.
        notes: Sorted; `host_bound` when over 10 % of the samples may hold launch gaps,
            `slow_submission` when they hold none but the host takes longer than the device,
            `waits_for_device` when a call returned much later than a lone one is over: it waited
            for what the timer had queued before it.
        elapsed_s: Time spent on this entry, flushes and resets included.
    """

    samples: Mapping[str, tuple[float, ...]]
    stop: Stop
    notes: tuple[str, ...]
    elapsed_s: float


class EntryFailed(RunFailed):
    """An entry raised while it was measured; `__cause__` is what it raised.

    Args:
        entry: Name of the entry.
        cause: What it raised.
    """

    def __init__(self, entry: str, cause: BaseException) -> None:
        first_line = str(cause).partition("\n")[0]
        super().__init__(f"{entry} raised {type(cause).__name__}: {first_line}")
        self.entry = entry


@dataclass
class _Entry:
    """What has been collected of one entry so far."""

    name: str
    calls: Sequence[PreparedCall]
    device_ms: list[float] = field(default_factory=list)
    host_ms: list[float] = field(default_factory=list)
    call_ms: list[float] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)
    late: int = 0
    is_long: bool = False
    elapsed_s: float = 0.0
    stop: Stop | None = None

    def batch_size(self, rule: StoppingRule) -> int:
        """Samples for the next batch: one at first, then as many as fit in a batch's time."""
        taken = len(self.device_ms)
        if not taken:
            return 1
        per_sample_s = max(self.elapsed_s / taken, 1e-9)
        return max(1, min(_MAX_BATCH, int(_BATCH_S / per_sample_s), rule.max_samples - taken))

    def take(self, timer: Timer, count: int, clock_s: Callable[[], float]) -> None:
        """Take one batch of `count` samples."""
        began_s = clock_s()
        batch = timer.sample(self.calls, count, opened=self.is_long)
        self.device_ms += batch.device_time_ms
        self.host_ms += batch.host_time_ms
        self.late += batch.late
        self.notes |= set(batch.notes)
        if timer.synchronous:
            self.call_ms += batch.host_time_ms
        else:
            due = len(self.device_ms) // _CALL_TIME_SHARE + 1 - len(self.call_ms)
            self.call_ms += timer.call_time_ms(self.calls[0], max(0, due))
        self.elapsed_s += clock_s() - began_s

    def measured(self) -> Measured:
        """The frozen result; only of an entry that has stopped."""
        assert self.stop is not None
        notes = set(self.notes)
        if self.late > _LATE_SHARE * len(self.device_ms):
            notes.add("host_bound")
        elif median(self.host_ms) > median(self.device_ms):
            notes.add("slow_submission")
        if self.call_ms and median(self.host_ms) > _WAITED * median(self.call_ms):
            notes.add("waits_for_device")
        samples = {
            "device_time_ms": tuple(self.device_ms),
            "host_time_ms": tuple(self.host_ms),
            "call_time_ms": tuple(self.call_ms),
        }
        return Measured(
            samples=samples, stop=self.stop, notes=tuple(sorted(notes)), elapsed_s=self.elapsed_s
        )


def measure_interleaved(
    entries: Mapping[str, Sequence[PreparedCall]],
    *,
    timer: Timer,
    rule: StoppingRule,
    seed: int,
    long_calls_ms: Mapping[str, float] = MappingProxyType({}),
    on_batch: Callable[[str, int], None] | None = None,
    clock_s: Callable[[], float] = time.perf_counter,
) -> Mapping[str, Measured]:
    """Measure all entries in rounds; each gets one batch a round until its own rule stops it.

    The order within a round is shuffled anew from `seed`, so no entry always follows the same
    neighbour. Calls must be warmed up before (`measure.warmup`). For one entry at a time, call
    it once per entry.

    Args:
        entries: Name -> copies of its prepared call. More than one copy makes sense for the
            graph timer only; the others flush the cache instead.
        timer: From `make_timer`.
        rule: Applied to each entry by itself, on its device times and its own elapsed time.
        seed: Of the order.
        long_calls_ms: Name of an entry -> the time of a lone call just made, where calls are so
            long (`warmup.LONG_CALL_S`) that it is the first sample of `call_time_ms`, and that
            what an untimed call would settle is nothing beside a sample.
        on_batch: Called after each batch with the name and its number of samples so far.
        clock_s: Monotonic clock in seconds.

    Raises:
        EntryFailed: An entry raised; names it, so that the others can be measured without it.
            A BenchxError (such as TimerUnsupported) is wrapped too; look at `__cause__`.
    """
    order = random.Random(seed)
    state = [_Entry(name, calls) for name, calls in entries.items()]
    for entry in state:
        entry.is_long = entry.name in long_calls_ms
        if entry.is_long and not timer.synchronous:
            entry.call_ms.append(long_calls_ms[entry.name])
    while running := [entry for entry in state if entry.stop is None]:
        order.shuffle(running)
        for entry in running:
            _take_turn(entry, timer, rule, clock_s)
            if on_batch is not None:
                on_batch(entry.name, len(entry.device_ms))
    return {entry.name: entry.measured() for entry in state}


def _take_turn(
    entry: _Entry, timer: Timer, rule: StoppingRule, clock_s: Callable[[], float]
) -> None:
    try:
        entry.take(timer, entry.batch_size(rule), clock_s)
    except Exception as error:
        raise EntryFailed(entry.name, error) from error
    entry.stop = rule.stop(entry.device_ms, entry.elapsed_s)
