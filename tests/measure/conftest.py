"""Fakes: a clock that moves only when told, a CPU of known cache, a call that takes known time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.sampling import SampleBatch


@dataclass
class FakeClock:
    """A monotonic clock under the test's control."""

    now_ns: int = 0

    def ns(self) -> int:
        return self.now_ns

    def s(self) -> float:
        return self.now_ns / 1e9

    def work(self, ms: float) -> PreparedCall:
        """A call that takes `ms` on this clock."""

        def run() -> dict[str, object]:
            self.now_ns += round(ms * 1e6)
            return {}

        return PreparedCall(run=run)


@dataclass
class FakeTimer:
    """Yields scripted device times per call; remembers the order of the turns."""

    clock: FakeClock
    times_ms: dict[int, list[float]]
    late: int = 0
    host_share: float = 1.0
    notes: tuple[str, ...] = ()
    synchronous: bool = False
    name: str = "fake"
    turns: list[tuple[int, int]] = field(default_factory=list)

    def sample(
        self, calls: Sequence[PreparedCall], count: int, *, opened: bool = False
    ) -> SampleBatch:
        key = id(calls[0])
        script = self.times_ms[key]
        done = sum(n for k, n in self.turns if k == key)
        times = tuple(script[(done + i) % len(script)] for i in range(count))
        self.turns.append((key, count))
        self.clock.now_ns += round(sum(times) * 1e6)
        return SampleBatch(
            device_time_ms=times,
            host_time_ms=tuple(time * self.host_share for time in times),
            late=self.late * count,
            notes=self.notes,
        )

    def call_time_ms(self, call: PreparedCall, count: int) -> tuple[float, ...]:
        return (1.0,) * count


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def fake_timer(clock: FakeClock) -> Callable[..., FakeTimer]:
    def make(times_ms: dict[int, list[float]], **fields: object) -> FakeTimer:
        return FakeTimer(clock, times_ms, **fields)

    return make


@pytest.fixture
def cpu() -> Device:
    return Device(
        vendor="cpu",
        torch_type="cpu",
        name="Test CPU",
        index=0,
        count=1,
        arch="x86_64",
        memory_bytes=2**30,
        l2_bytes=2**20,
        compute_units=2,
    )


@pytest.fixture
def gpu_like() -> Device:
    """Facts of a GPU for the pure functions; nothing runs on it."""
    return Device(
        vendor="nvidia",
        torch_type="cuda",
        name="Test GPU",
        index=0,
        count=1,
        arch="sm_90",
        memory_bytes=64 * 2**30,
        l2_bytes=60 * 2**20,
        compute_units=132,
    )
