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
from benchx.measure.warmup import warm_up

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
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda index: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: 600)
    monkeypatch.setattr("benchx.measure.event_timer.time.perf_counter_ns", fake.ns)
    monkeypatch.setattr("benchx.measure.warmup.time.perf_counter", lambda: fake.now_ms / 1e3)
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


def test_a_call_that_waits_inside_does_not_make_the_spin_ever_longer(
    device: FakeDevice, gpu_like: Device
) -> None:
    """The spin of 20 ms that it would end at takes six hundred times what such a call does."""
    call = PreparedCall(run=lambda: device.queue(0.03) or device.wait() or {})
    timer = EventTimer(gpu_like, None, spin=True)
    rule = StoppingRule(min_samples=100, max_samples=100, target_error=0)
    measured = measure_interleaved({"x": [call]}, timer=timer, rule=rule, seed=0)["x"]
    assert "waits_for_device" in measured.notes
    assert max(measured.samples["host_time_ms"][20:]) < 0.2
    assert measured.samples["device_time_ms"] == pytest.approx((0.03,) * 100, abs=2 * EVENT_MS)


def test_a_call_that_takes_the_host_long_is_covered_in_full(
    device: FakeDevice, gpu_like: Device
) -> None:
    """Its lone calls are as long as their submission, so they do not shorten the spin."""
    call = PreparedCall(run=lambda: device.host(3.0) or device.queue(0.5) or {})
    timer = EventTimer(gpu_like, None, spin=True)
    rule = StoppingRule(min_samples=40, max_samples=40, target_error=0)
    measured = measure_interleaved({"x": [call]}, timer=timer, rule=rule, seed=0)["x"]
    assert measured.notes == ("slow_submission",)
    assert measured.samples["device_time_ms"][5:] == pytest.approx((0.5,) * 35, abs=2 * EVENT_MS)


def test_a_call_that_only_submits_does_not_wait(device: FakeDevice, gpu_like: Device) -> None:
    timer = EventTimer(gpu_like, None, spin=True)
    assert notes_of(timer, lambda: device.host(0.1), lambda: device.queue(1.0)) == ()


def test_a_call_of_half_a_minute_is_made_three_times_for_all_of_its_figures(
    device: FakeDevice, gpu_like: Device
) -> None:
    """The first, a steady one that also gives memory and call time, the one that is timed."""
    made: list[float] = []

    def run() -> dict[str, torch.Tensor]:
        made.append(device.now_ms)
        device.host(50.0)
        device.queue(28_000.0)
        return {}

    call = PreparedCall(run=run)
    warm = warm_up(call, gpu_like)
    assert warm.is_long
    assert warm.peak_bytes == 100
    measured = measure_interleaved(
        {"x": [call]},
        timer=EventTimer(gpu_like, None, spin=True),
        rule=StoppingRule(max_time_s=0.0),
        seed=0,
        long_calls_ms={"x": warm.steady_call_s * 1e3},
        clock_s=lambda: device.now_ms / 1e3,
    )["x"]
    assert len(made) == 3
    assert measured.samples["call_time_ms"] == pytest.approx((28_050.0,))
    assert measured.samples["device_time_ms"] == pytest.approx((28_030.0,), rel=1e-3)


def test_a_short_call_has_an_untimed_one_before_it_and_call_times_of_its_own(
    device: FakeDevice, gpu_like: Device
) -> None:
    made: list[float] = []
    call = PreparedCall(run=lambda: made.append(device.now_ms) or device.queue(1.0) or {})
    warm = warm_up(call, gpu_like)
    assert (warm.is_long, warm.peak_bytes) == (False, None)
    made.clear()
    rule = StoppingRule(max_samples=1)
    measure_interleaved({"x": [call]}, timer=EventTimer(gpu_like, None), rule=rule, seed=0)
    assert len(made) == 3


def test_a_long_first_call_that_only_compiled_leaves_the_others_as_they_are(
    device: FakeDevice, gpu_like: Device
) -> None:
    times_ms = iter([10_000.0, *[1.0] * 1000])
    warm = warm_up(PreparedCall(run=lambda: device.queue(next(times_ms)) or {}), gpu_like)
    assert not warm.is_long
