"""The control kernel reads the machine, not what happened to come before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure import control as module
from benchx.measure.control import ControlKernel, ControlTimes
from benchx.measure.sampling import SampleBatch

RAMP_MS = 40.0
"""How long this card must be busy until its clocks are up."""


@dataclass
class SleepyCard:
    """Work takes a tenth longer until the card has been busy for a while."""

    now_ms: float = 0.0
    busy_ms: float = 0.0

    def work(self, ms: float) -> PreparedCall:
        def run() -> dict[str, object]:
            took_ms = ms if self.busy_ms >= RAMP_MS else 1.1 * ms
            self.now_ms += took_ms
            self.busy_ms += took_ms
            return {}

        return PreparedCall(run=run)

    def idle(self) -> None:
        self.busy_ms = 0.0

    def sample(self, calls: Sequence[PreparedCall], count: int) -> SampleBatch:
        """Stands in for a timer."""
        times = []
        for _ in range(count):
            began_ms = self.now_ms
            calls[0].run()
            times.append(self.now_ms - began_ms)
        return SampleBatch(device_time_ms=tuple(times), host_time_ms=tuple(times))


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> SleepyCard:
    found = SleepyCard()
    monkeypatch.setattr(module, "copy_call", lambda device, nbytes: found.work(0.13))
    monkeypatch.setattr(module, "product_call", lambda device, matrix, dtype: found.work(0.03))
    monkeypatch.setattr(module, "make_timer", lambda name, device, cache: found)
    monkeypatch.setattr(module, "ColdCache", lambda device: None)
    monkeypatch.setattr("benchx.measure.warmup.synchronize", lambda device: None)
    monkeypatch.setattr("benchx.measure.warmup.time.perf_counter", lambda: found.now_ms / 1e3)
    return found


def test_a_card_that_idled_before_a_look_shows_no_drift(card: SleepyCard, gpu_like: Device) -> None:
    control = ControlKernel(gpu_like)
    looks = []
    for _ in range(3):
        card.idle()
        looks.append(control.times_ms())
    assert looks == [ControlTimes(pytest.approx(0.13), pytest.approx(0.03))] * 3
