"""Events on a fake device: what the host does while the device spins is nowhere in them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure import gpu
from benchx.measure.event_timer import EventTimer
from benchx.measure.interleave import measure_interleaved
from benchx.measure.stopping import StoppingRule

EVENT_MS = 0.00125
"""What an H200 takes from one event to the next."""

RULE = StoppingRule(min_samples=6, max_samples=6, target_error=0)


@dataclass
class FakeEvent:
    device: FakeDevice
    at_ms: float = 0.0

    def record(self) -> None:
        self.device.queue(EVENT_MS)
        self.at_ms = self.device.busy_until_ms


@dataclass
class FakeDevice:
    """One stream: what is queued begins when the host says so and the device is free."""

    now_ms: float = 0.0
    busy_until_ms: float = 0.0

    def queue(self, ms: float) -> None:
        self.busy_until_ms = max(self.busy_until_ms, self.now_ms) + ms

    def wait(self, _index: int | None = None) -> None:
        self.now_ms = max(self.now_ms, self.busy_until_ms)

    def host(self, ms: float) -> None:
        self.now_ms += ms

    def ns(self) -> int:
        return round(self.now_ms * 1e6)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake = FakeDevice()
    monkeypatch.setattr(gpu, "timing_event", lambda: FakeEvent(fake))
    monkeypatch.setattr(gpu, "elapsed_ms", lambda start, end: end.at_ms - start.at_ms)
    monkeypatch.setattr(gpu, "has_happened", lambda event: event.at_ms <= fake.now_ms)
    monkeypatch.setattr(gpu, "can_spin", lambda: True)
    monkeypatch.setattr(gpu, "spin", lambda cycles: fake.queue(cycles / 1e6))
    monkeypatch.setattr(torch.cuda, "synchronize", fake.wait)
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    monkeypatch.setattr("benchx.measure.event_timer.time.perf_counter_ns", fake.ns)
    return fake


def notes_of(timer: EventTimer, *steps: Callable[[], None]) -> tuple[str, ...]:
    def run() -> dict[str, torch.Tensor]:
        for step in steps:
            step()
        return {}

    entries = {"x": [PreparedCall(run=run)]}
    return measure_interleaved(entries, timer=timer, rule=RULE, seed=0)["x"].notes


def test_work_of_the_host_alone_leaves_no_time_between_events_and_is_noted(
    device: FakeDevice, gpu_like: Device
) -> None:
    timer = EventTimer(gpu_like, None, spin=True)
    call = PreparedCall(run=lambda: device.host(4.0) or {})
    timer.sample([call], 4)  # the spin learns how long the call takes
    batch = timer.sample([call], 4)
    assert batch.device_time_ms == pytest.approx((EVENT_MS,) * 4)
    assert batch.notes == ("no_device_work",)


def test_a_kernel_of_two_microseconds_is_work(device: FakeDevice, gpu_like: Device) -> None:
    timer = EventTimer(gpu_like, None, spin=True)
    notes = notes_of(timer, lambda: device.host(0.004), lambda: device.queue(0.002))
    assert notes == ("slow_submission",)


def test_without_a_spin_events_tell_nothing_of_an_idle_device(
    device: FakeDevice, gpu_like: Device
) -> None:
    call = PreparedCall(run=lambda: device.host(4.0) or {})
    batch = EventTimer(gpu_like, None).sample([call], 2)
    assert batch.notes == ()
    assert min(batch.device_time_ms) > 3.9


def test_a_call_that_waits_inside_is_noted_since_it_waits_for_the_spin_too(
    device: FakeDevice, gpu_like: Device
) -> None:
    timer = EventTimer(gpu_like, None, spin=True)
    notes = notes_of(timer, lambda: device.queue(1.0), device.wait)
    assert "waits_for_device" in notes


def test_a_call_that_only_submits_does_not_wait(device: FakeDevice, gpu_like: Device) -> None:
    timer = EventTimer(gpu_like, None, spin=True)
    assert notes_of(timer, lambda: device.host(0.1), lambda: device.queue(1.0)) == ()
