"""The timer against known durations and other people's timers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure import burst, nvbench
from benchx.measure.calibrate import TimerCheck, alternate, calibrate_timer, compare
from benchx.measure.device import list_devices
from benchx.measure.nvbench import pair_up, parse_times_ms
from benchx.measure.sampling import SampleBatch
from benchx.measure.warmup import WarmUp


def test_a_deviation_is_relative_to_the_other() -> None:
    check = compare("copy", 1.01, 1.0, "known")
    assert check.deviation == pytest.approx(0.01)
    assert check.passed is True


@pytest.mark.parametrize("ours", [0.97, 1.03])
def test_more_than_two_percent_either_way_fails(ours: float) -> None:
    assert compare("copy", ours, 1.0, "known").passed is False


def test_without_another_timer_nothing_is_claimed() -> None:
    check = TimerCheck(name="copy", ours_ms=1.0, theirs_ms=None, other="x", reason="not installed")
    assert (check.passed, check.deviation) == (None, None)


def test_pairs_cancel_a_drift_that_would_dwarf_the_tolerance() -> None:
    now = iter(range(1, 1000))
    check = alternate(
        "drifting", lambda: 100.0 + next(now), lambda: 100.0 + next(now), other="twin", rounds=40
    )
    assert check.passed is True


@dataclass
class Counting:
    """A timer that only remembers what it was asked for."""

    counts: list[int] = field(default_factory=list)
    name: str = "counting"
    synchronous: bool = True

    def sample(self, calls: Sequence[PreparedCall], count: int) -> SampleBatch:
        self.counts.append(count)
        return SampleBatch(device_time_ms=(7.0,) * count, host_time_ms=(7.0,) * count)

    def call_time_ms(self, call: PreparedCall, count: int) -> tuple[float, ...]:
        return (7.0,) * count


@pytest.mark.parametrize(("steady_s", "count"), [(0.002, 50), (0.03, 10)])
def test_a_burst_follows_a_rest_and_lasts_a_tenth_of_a_second_or_ten_calls(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, steady_s: float, count: int
) -> None:
    log: list[object] = []

    def warm_up(call: PreparedCall, device: Device, *, max_time_s: float) -> WarmUp:
        log.append("warm-up")
        return WarmUp(first_call_s=1.0, steady_call_s=steady_s, calls=4, steady=True)

    monkeypatch.setattr(burst, "warm_up", warm_up)
    timer = Counting()
    assert burst.burst_ms(PreparedCall(run=dict), cpu, timer, sleep=log.append) == 7.0
    assert log == [burst.REST_S, "warm-up"]
    assert timer.counts == [count]


class FakeNvbench(ModuleType):
    """Runs each registered benchmark once and writes NVBench's JSON: 2 ms for everything."""

    def __init__(self) -> None:
        super().__init__("cuda.bench")
        self.registered: list[tuple[Callable[[object], None], list[str]]] = []

    def register(self, benchmark: Callable[[object], None]) -> SimpleNamespace:
        names: list[str] = []
        self.registered.append((benchmark, names))
        return SimpleNamespace(set_name=names.append)

    def run_all_benchmarks(self, argv: list[str]) -> None:
        launched = SimpleNamespace(get_stream=lambda: SimpleNamespace(addressof=lambda: 0))
        state = SimpleNamespace(exec=lambda launch, batched: launch(launched))
        data = [{"name": "value", "value": "0.002"}]
        summary = {"tag": "nv/cold/time/gpu/mean", "data": data}
        for benchmark, _ in self.registered:
            benchmark(state)
        found = [{"name": n[0], "states": [{"summaries": [summary]}]} for _, n in self.registered]
        Path(argv[argv.index("--json") + 1]).write_text(json.dumps({"benchmarks": found}))


def test_in_nvbench_s_process_our_timer_is_asked_before_and_after_each_of_its_turns(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log: list[str] = []

    def call(name: str) -> PreparedCall:
        return PreparedCall(run=lambda: log.append(f"their {name}") or {})

    def ask_us(call: PreparedCall, device: Device, timer: object) -> float:
        log.append("ours")
        return float(len(log))

    fakes = {
        "probe_device": lambda index: cpu,
        "ColdCache": lambda device: None,
        "make_timer": lambda *arguments: None,
        "copy_call": lambda device, nbytes: call("copy"),
        "product_call": lambda device, matrix, dtype: call("product"),
        "burst_ms": ask_us,
        "rested_and_warm_s": lambda call, device: log.append("rest"),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(nvbench, name, fake)
    monkeypatch.setattr(nvbench.gpu, "external_stream", lambda address, index: None)
    monkeypatch.setitem(sys.modules, "cuda.bench", FakeNvbench())
    nvbench.main([str(tmp_path), "0"])
    turn = ["ours", "rest", "their copy", "ours"]
    assert log[: 4 * nvbench.ROUNDS] == turn * nvbench.ROUNDS
    assert log[-2:] == ["their product", "ours"]
    theirs, ours = (
        json.loads((tmp_path / name).read_text()) for name in ("nvbench.json", "benchx.json")
    )
    pairs = nvbench.pair_up(ours, nvbench.parse_times_ms(theirs))
    assert pairs["copy"] == ((2.5, 2.0), (6.5, 2.0), (10.5, 2.0))
    assert len(pairs["product"]) == nvbench.ROUNDS


def test_rounds_pair_nvbench_s_figure_with_the_mean_of_ours_around_it() -> None:
    ours = {"copy_0": [1.0, 3.0], "copy_1": [2.0, 2.0], "product_0": [5.0, 5.0]}
    theirs = {"copy_0": 2.5, "copy_1": 2.25, "product_0": 5.0}
    assert pair_up(ours, theirs) == {
        "copy": ((2.0, 2.5), (2.0, 2.25)),
        "product": ((5.0, 5.0),),
    }


@pytest.mark.parametrize(
    ("ours", "theirs"), [({"copy_0": [1.0]}, {}), ({}, {}), ({"copy_0": []}, {"copy_0": 1.0})]
)
def test_a_round_without_both_figures_is_no_comparison(
    ours: dict[str, list[float]], theirs: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match=r"no figure of|at least one"):
        pair_up(ours, theirs)


def test_nvbench_s_median_is_taken_and_its_mean_when_there_is_none() -> None:
    def summary(tag: str, seconds: float) -> dict[str, object]:
        data = [{"name": "value", "type": "float64", "value": str(seconds)}]
        return {"tag": f"nv/cold/time/gpu/{tag}", "data": data}

    both = {"summaries": [summary("mean", 0.003), summary("median", 0.002)]}
    mean = {"summaries": [summary("mean", 0.003)]}
    result = {
        "benchmarks": [{"name": "copy", "states": [both]}, {"name": "product", "states": [mean]}]
    }
    assert parse_times_ms(result) == {"copy": 2.0, "product": 3.0}


def test_a_benchmark_that_nvbench_skipped_is_no_figure() -> None:
    state = {"summaries": None, "is_skipped": True, "skip_reason": "no memory"}
    with pytest.raises(ValueError, match="copy: no memory"):
        parse_times_ms({"benchmarks": [{"name": "copy", "states": [state]}]})


@pytest.mark.slow
def test_a_sleep_and_a_copy_are_timed_within_two_percent_on_the_cpu() -> None:
    device = list_devices()[-1]
    # Another process may own the cores for seconds: the best of three attempts is judged.
    attempts = [calibrate_timer(device) for _ in range(3)]
    worst = [max(abs(check.deviation) for check in checks) for checks in attempts]
    assert min(worst) <= 0.02, attempts


@pytest.mark.gpu
def test_a_copy_and_a_product_are_timed_within_two_percent_on_the_gpu(gpu) -> None:  # noqa: ANN001
    checks = calibrate_timer(gpu)
    assert any(check.passed is not None for check in checks)
    assert all(check.passed is not False for check in checks), checks
