"""Timers without a GPU: choice by name, and the CPU clock on a fake clock."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Protocol, get_args, get_type_hints

import pytest

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.errors import UsageError
from benchx.measure.cpu_timer import CpuTimer
from benchx.measure.graph_timer import unrolled_calls
from benchx.measure.timers import TIMERS, make_timer
from benchx.scenario.schema import MeasureSettings


class Clock(Protocol):
    """The fake clock of conftest.py."""

    now_ns: int

    def ns(self) -> int: ...

    def work(self, ms: float) -> PreparedCall: ...


class _Flushes:
    """Stands in for ColdCache and logs."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def flush(self) -> None:
        self.log.append("flush")


def _logging_call(log: list[str], name: str = "") -> PreparedCall:
    def run() -> Mapping[str, object]:
        log.append(f"run{name}")
        return {}

    return PreparedCall(run=run, reset=lambda: log.append(f"reset{name}"))


def _named(*_: object, spin: bool, **__: object) -> SimpleNamespace:
    """Stands in for EventTimer, which needs a GPU."""
    return SimpleNamespace(name="events_spin" if spin else "events")


def test_auto_on_a_cpu_is_the_cpu_clock(cpu: Device) -> None:
    timer = make_timer("auto", cpu, None)
    assert (timer.name, timer.synchronous) == ("cpu", True)


def test_auto_on_a_gpu_leaves_launch_gaps_out_where_torch_can_spin(
    gpu_like: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for can_spin, name in ((True, "events_spin"), (False, "events")):
        monkeypatch.setattr("benchx.measure.gpu.can_spin", lambda can=can_spin: can)
        monkeypatch.setattr("benchx.measure.timers.EventTimer", _named)
        assert make_timer("auto", gpu_like, None).name == name


def test_a_scenario_may_name_every_timer() -> None:
    assert set(get_args(get_type_hints(MeasureSettings)["timer"])) == set(TIMERS)


@pytest.mark.parametrize("name", ["events", "events_spin", "graph"])
def test_device_timers_are_refused_on_a_cpu(name: str, cpu: Device) -> None:
    with pytest.raises(UsageError, match=r"Test CPU; use cpu"):
        make_timer(name, cpu, None)


def test_the_cpu_clock_is_refused_on_a_gpu(gpu_like: Device) -> None:
    with pytest.raises(UsageError, match="use events"):
        make_timer("cpu", gpu_like, None)


def test_a_misspelt_timer_names_the_nearest(cpu: Device) -> None:
    with pytest.raises(UsageError, match="did you mean 'events'"):
        make_timer("event", cpu, None)


def test_reset_and_flush_come_before_the_timed_region_in_that_order() -> None:
    log: list[str] = []
    timer = CpuTimer(_Flushes(log))
    timer.sample([_logging_call(log)], 2)
    assert log == ["reset", "flush", "run"] * 2


def test_cold_samples_are_single_calls_of_the_true_length(clock: Clock) -> None:
    timer = CpuTimer(_Flushes([]), clock_ns=clock.ns)
    batch = timer.sample([clock.work(0.25)], 3)
    assert batch.device_time_ms == (0.25, 0.25, 0.25)
    assert batch.notes == ()


def test_flush_time_is_not_in_the_sample(clock: Clock) -> None:
    class SlowFlush:
        def flush(self) -> None:
            clock.now_ns += 10**9

    batch = CpuTimer(SlowFlush(), clock_ns=clock.ns).sample([clock.work(2.0)], 1)
    assert batch.device_time_ms == (2.0,)


def test_a_cold_sample_near_the_clock_s_resolution_is_noted(clock: Clock) -> None:
    timer = CpuTimer(_Flushes([]), clock_ns=clock.ns)
    assert timer.sample([clock.work(0.002)], 1).notes == ("near_timer_resolution",)


def test_a_tiny_warm_call_is_repeated_until_a_sample_lasts_a_millisecond(clock: Clock) -> None:
    runs = 0
    work = clock.work(0.003)

    def run() -> Mapping[str, object]:
        nonlocal runs
        runs += 1
        return work.run()

    timer = CpuTimer(None, clock_ns=clock.ns)
    calls = [PreparedCall(run=run)]
    timer.sample(calls, 1)
    runs = 0
    batch = timer.sample(calls, 1)
    assert runs * 0.003 >= 1.0
    assert batch.device_time_ms == pytest.approx((0.003,))
    assert batch.notes == ("inner_repetitions",)


def test_a_call_that_needs_a_reset_is_never_repeated_within_a_sample() -> None:
    log: list[str] = []
    CpuTimer(None).sample([_logging_call(log)], 2)
    assert log == ["reset", "run"] * 2


def test_samples_rotate_over_the_copies() -> None:
    log: list[str] = []
    CpuTimer(_Flushes([])).sample([_logging_call(log, "a"), _logging_call(log, "b")], 3)
    assert [entry for entry in log if entry.startswith("run")] == ["runa", "runb", "runa"]


def test_call_time_is_one_call_per_figure(clock: Clock) -> None:
    timer = CpuTimer(None, clock_ns=clock.ns)
    assert timer.call_time_ms(clock.work(0.5), 2) == (0.5, 0.5)


def test_a_graph_holds_whole_rotations_of_at_least_five_milliseconds() -> None:
    assert unrolled_calls(0.01, 3, stateful=False) == 501
    assert unrolled_calls(8.0, 3, stateful=False) == 3
    assert unrolled_calls(0.0, 1, stateful=False) == 1000


def test_a_graph_of_a_stateful_call_runs_each_copy_once() -> None:
    assert unrolled_calls(0.01, 7, stateful=True) == 7
