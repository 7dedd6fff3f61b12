from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchx.core.device import Device
from benchx.core.errors import ScenarioError
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.runner.drift import INTERVAL_S, DriftWatch
from benchx.runner.interrupts import Interrupt, catching_interrupts
from benchx.runner.plan import describe, group_points, make_plan
from benchx.scenario import Vocabulary, load, shipped

CPU = Device(
    vendor="cpu",
    torch_type="cpu",
    name="some cpu",
    index=0,
    count=1,
    arch="x",
    memory_bytes=2**30,
    l2_bytes=2**20,
    compute_units=2,
)

TEXT = """\
schema: 1
name: doubling
title: Who can double?
kind: kernel
op: doubling
backends: [good, absent, incapable]
axes: {size: [1, 2]}
measure: {launches: 3, max_time: 2s, timer: %s}
"""


@pytest.fixture
def scenario(tmp_path: Path, fakes_on_path: None) -> Callable[[str], tuple[object, Vocabulary]]:
    import bad_backends  # noqa: F401 - registers

    from benchx.ops.vocabulary import kernel_words

    def write(timer: str = "auto") -> tuple[object, Vocabulary]:
        path = tmp_path / "s.yaml"
        path.write_text(TEXT % timer)
        return load(path), Vocabulary(ops=kernel_words())

    return write


def test_a_plan_says_what_will_not_run_and_why(scenario: Callable[..., tuple]) -> None:
    planned = describe(*scenario(), CPU)
    told = {entry.point.backend: entry.unavailable for entry in planned}
    assert told["good"] is None
    assert told["absent"] is not None
    assert told["absent"].outcome is Outcome.SKIPPED
    assert told["incapable"] is not None
    assert told["incapable"].outcome is Outcome.UNSUPPORTED
    assert len(planned) == 6


def test_a_point_takes_at_most_its_time_limit_per_launch_and_nothing_if_it_does_not_run(
    scenario: Callable[..., tuple],
) -> None:
    seconds = {p.point.backend: p.est_seconds for p in describe(*scenario(), CPU)}
    assert seconds == {"good": 6.0, "absent": 0.0, "incapable": 0.0}


def test_a_timer_that_needs_a_gpu_is_seen_before_anything_runs_unless_the_backend_lacks_more(
    scenario: Callable[..., tuple],
) -> None:
    told = {p.point.backend: str(p.unavailable) for p in describe(*scenario("graph"), CPU)}
    assert "needs a GPU, this is some cpu" in told["good"]
    assert "not installed" in told["absent"]


SERVING = """\
schema: 1
name: serving
kind: serving
engine:
  name: vllm
  model: m
  {}
workload: {{dataset: random, input_len: 8, output_len: 4, requests: 20}}
axes: {{concurrency: [1], max_num_seqs: [1, 4k]}}
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("args: {port: 3}", "engine.args: --port is set by a field of `engine` already"),
        ("args: {max_num_seqs: 3}", "engine.args: --max-num-seqs is set by a field"),
        ("args: {foo: {a: 1}, bar: false}", "engine.args: --bar has the value"),
        ("architecture: kimi-k4", "engine.architecture: unknown architecture 'kimi-k4'"),
    ],
)
def test_what_no_start_of_an_engine_can_do_with_is_refused_before_the_run_with_its_line(
    tmp_path: Path, line: str, told: str
) -> None:
    (tmp_path / "s.yaml").write_text(SERVING.format(line))
    with pytest.raises(ScenarioError) as refused:
        make_plan(load(tmp_path / "s.yaml"), Vocabulary(ops={}))
    assert f"s.yaml:7: {told}" in str(refused.value)
    (tmp_path / "s.yaml").write_text(SERVING.format("args: {swap-space: 4}"))
    assert len(make_plan(load(tmp_path / "s.yaml"), Vocabulary(ops={})).entries) == 2


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("serving-")])
def test_every_shipped_serving_scenario_can_be_planned_without_its_engine(name: str) -> None:
    assert make_plan(load(name), Vocabulary(ops={})).entries


def test_points_that_differ_in_the_backend_only_are_measured_together(
    scenario: Callable[..., tuple],
) -> None:
    plan = make_plan(*scenario())
    groups = group_points(plan.points_of(0))
    assert [[point.backend for point in group.points] for group in groups] == 2 * [
        ["good", "absent", "incapable"]
    ]
    assert plan.points_of(3) == ()


def test_parts_are_not_mixed_in_one_group() -> None:
    points = [
        Point(kind="kernel", subject="op", backend=backend, params={}, part=part)
        for part in (0, 1)
        for backend in ("a", "b")
    ]
    assert [group.part for group in group_points(points)] == [0, 1]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Kernel:
    def __init__(self, *times_ms: float) -> None:
        self._times_ms = iter(times_ms)

    def time_ms(self) -> float:
        return next(self._times_ms)


def test_the_control_kernel_is_looked_at_no_more_than_every_five_seconds() -> None:
    clock, seen = Clock(), []
    watch = DriftWatch(CPU, seen.append, make=lambda device: Kernel(2.0, 3.0), clock_s=clock)
    for clock.now_s in (0.0, 1.0, INTERVAL_S - 0.1):
        watch.look()
    assert seen == [2.0]
    assert watch.columns() == {}
    clock.now_s = INTERVAL_S
    watch.look()
    assert seen == [2.0, 3.0]
    assert watch.columns()["control_drift"] == pytest.approx(0.5)


def test_the_last_look_is_taken_however_soon_but_never_as_the_first() -> None:
    seen: list[float] = []
    watch = DriftWatch(CPU, seen.append, make=lambda device: Kernel(2.0, 3.0), clock_s=Clock())
    watch.last_look()
    assert seen == []
    watch.look()
    watch.last_look()
    assert seen == [2.0, 3.0]


def test_behind_the_last_points_it_is_timed_while_they_hold_their_memory_and_then_no_more() -> None:
    seen: list[float] = []
    watch = DriftWatch(CPU, seen.append, make=lambda device: Kernel(2.0, 3.0), clock_s=Clock())
    watch.look()
    watch.look()  # too soon, and more points follow
    watch.look(closing=True)
    watch.last_look()
    assert seen == [2.0, 3.0]


def test_a_control_kernel_that_fails_claims_nothing() -> None:
    seen: list[float] = []

    def broken(device: Device) -> Kernel:
        raise MemoryError("no room")

    watch = DriftWatch(CPU, seen.append, make=broken)
    watch.look()
    assert seen == []
    assert watch.columns() == {}


def test_signals_become_a_flag_and_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    before = signal.getsignal(signal.SIGTERM)
    with catching_interrupts() as interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.by == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_acts_at_once() -> None:
    import signal

    interrupt = Interrupt()
    interrupt.request(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt.request(signal.SIGINT)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    import os
    import signal

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with catching_interrupts() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupt.by is None
    finally:
        signal.signal(signal.SIGHUP, before)
