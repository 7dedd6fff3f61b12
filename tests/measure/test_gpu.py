"""What can only be shown on a GPU: run with `pytest -m gpu tests/measure`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from benchx.core.call import OutputSpec, PreparedCall, Reference
from benchx.core.device import Device
from benchx.measure.cache import ColdCache, rotation_copies
from benchx.measure.control import ControlKernel, copy_call
from benchx.measure.correctness import judge, poison
from benchx.measure.interleave import measure_interleaved
from benchx.measure.memory import peak_extra_bytes
from benchx.measure.stopping import StoppingRule
from benchx.measure.telemetry import Telemetry
from benchx.measure.timers import Timer, TimerUnsupported, make_timer
from benchx.measure.warmup import warm_up
from benchx.stats.summary import median

pytestmark = pytest.mark.gpu
MIB = 2**20


@pytest.fixture(scope="module")
def gigabyte_copy() -> PreparedCall:
    """About a millisecond on a card of 4 TB/s: 2 GiB read and 2 GiB written."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU in this process")
    from benchx.measure.device import probe_device

    call = copy_call(probe_device(), 2048 * MIB)
    warm_up(call, probe_device())
    return call


@pytest.fixture(scope="module")
def millisecond_kernel() -> PreparedCall:
    """The same traffic by a kernel; a copy would be left to a copy engine inside a graph."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU in this process")
    source = torch.ones(2048 * MIB // 4, device="cuda")
    target = torch.empty_like(source)
    return PreparedCall(run=lambda: {"out": torch.mul(source, 2.0, out=target)})


def _median_ms(timer: Timer, *calls: PreparedCall, count: int = 50) -> float:
    return median(timer.sample(calls, count).device_time_ms)


def _many_small_kernels(gpu: Device, kernels: int = 200) -> PreparedCall:
    x = torch.zeros(1024, device=gpu.torch_device)

    def run() -> Mapping[str, torch.Tensor]:
        for _ in range(kernels):
            x.add_(1)
        return {"x": x}

    return PreparedCall(run=run)


def _counter(gpu: Device) -> tuple[PreparedCall, torch.Tensor]:
    """A call that adds one to its state, and the state."""
    state = torch.zeros(1024, device=gpu.torch_device)
    return PreparedCall(run=lambda: {"s": state.add_(1)}, reset=state.zero_), state


def test_graph_and_events_agree_on_a_millisecond(
    gpu: Device, millisecond_kernel: PreparedCall
) -> None:
    warm_up(millisecond_kernel, gpu)
    events = _median_ms(make_timer("events", gpu, ColdCache(gpu)), millisecond_kernel)
    graph = make_timer("graph", gpu, ColdCache(gpu), copy_bytes=2048 * MIB)
    assert _median_ms(graph, millisecond_kernel, count=20) == pytest.approx(events, rel=0.02)
    assert graph.sample([millisecond_kernel], 1).notes == ()


def test_spinning_before_a_millisecond_kernel_changes_nothing(
    gpu: Device, gigabyte_copy: PreparedCall
) -> None:
    events, spin = (
        _median_ms(make_timer(name, gpu, ColdCache(gpu)), gigabyte_copy)
        for name in ("events", "events_spin")
    )
    assert spin == pytest.approx(events, rel=0.02)


def test_a_millisecond_kernel_is_not_host_bound(gpu: Device, gigabyte_copy: PreparedCall) -> None:
    timer = make_timer("events", gpu, ColdCache(gpu))
    assert timer.sample([gigabyte_copy], 20).late == 0


def test_flushing_makes_reading_a_small_buffer_slower(gpu: Device) -> None:
    buffer = torch.ones(gpu.l2_bytes // 3 // 4, device=gpu.torch_device)
    call = PreparedCall(run=lambda: {"max": buffer.amax()})
    warm_up(call, gpu)
    warm, cold = (
        _median_ms(make_timer("events_spin", gpu, cache), call) for cache in (None, ColdCache(gpu))
    )
    assert cold > 1.1 * warm


def test_launch_gaps_are_noticed_and_a_spin_removes_them(gpu: Device) -> None:
    call = _many_small_kernels(gpu)
    warm_up(call, gpu)
    rule = StoppingRule(max_samples=60, min_samples=60, target_error=0)
    plain, spin = (
        measure_interleaved(
            {"x": [call]}, timer=make_timer(name, gpu, ColdCache(gpu)), rule=rule, seed=0
        )["x"]
        for name in ("events", "events_spin")
    )
    assert "host_bound" in plain.notes
    assert "host_bound" not in spin.notes
    assert median(spin.samples["device_time_ms"]) < median(plain.samples["device_time_ms"])


def test_a_graph_and_a_spin_agree_on_many_small_kernels(gpu: Device) -> None:
    call = _many_small_kernels(gpu)
    warm_up(call, gpu)
    spin = _median_ms(make_timer("events_spin", gpu, None), call)
    graph = _median_ms(make_timer("graph", gpu, None), call, count=20)
    assert 0.3 < graph / spin <= 1.05  # a graph's launches are quicker than a stream's


def test_call_time_covers_device_time(gpu: Device, gigabyte_copy: PreparedCall) -> None:
    timer = make_timer("events", gpu, ColdCache(gpu))
    call_ms = median(timer.call_time_ms(gigabyte_copy, 20))
    device_ms = _median_ms(timer, gigabyte_copy)
    assert device_ms < call_ms < device_ms + 0.5


@pytest.mark.parametrize("name", ["events", "events_spin"])
def test_a_stateful_call_sees_the_same_state_in_every_sample(gpu: Device, name: str) -> None:
    call, state = _counter(gpu)
    make_timer(name, gpu, ColdCache(gpu)).sample([call], 7)
    assert float(state.max()) == 1.0


def test_a_graph_restores_every_copy_between_replays(gpu: Device) -> None:
    calls, states = zip(*(_counter(gpu) for _ in range(3)), strict=True)
    batch = make_timer("graph", gpu, ColdCache(gpu)).sample(calls, 5)
    assert [float(state.max()) for state in states] == [1.0] * 3
    assert len(batch.device_time_ms) == 5
    assert {"warm_l2", "graph_overhead"} == set(batch.notes)


def test_a_graph_over_enough_copies_is_cold_and_slower_than_a_warm_one(gpu: Device) -> None:
    nbytes = gpu.l2_bytes // 4
    copies = rotation_copies(nbytes, gpu)
    calls = []
    for _ in range(copies):
        buffer = torch.ones(nbytes // 4, device=gpu.torch_device)
        calls.append(PreparedCall(run=lambda buffer=buffer: {"max": buffer.amax()}))
    cold = make_timer("graph", gpu, ColdCache(gpu), copy_bytes=nbytes)
    warm = make_timer("graph", gpu, None)
    assert cold.sample(calls, 1).notes == ()
    assert _median_ms(cold, *calls, count=10) > 1.1 * _median_ms(warm, calls[0], count=10)


def test_a_call_that_waits_for_the_device_can_not_be_captured_and_leaves_the_gpu_usable(
    gpu: Device,
) -> None:
    x = torch.ones(16, device=gpu.torch_device)
    call = PreparedCall(run=lambda: {"x": x + float(x.sum().item())})
    with pytest.raises(TimerUnsupported, match="captur"):
        make_timer("graph", gpu, None).sample([call], 1)
    assert float((x + 1).sum()) == 32.0


def test_a_call_marked_unsafe_for_graphs_is_refused(gpu: Device) -> None:
    call = PreparedCall(run=dict, graph_safe=False)
    with pytest.raises(TimerUnsupported, match="use timer: events"):
        make_timer("graph", gpu, None).sample([call], 1)


def test_poisoned_memory_shows_what_a_kernel_does_not_write(gpu: Device) -> None:
    specs = {"o": OutputSpec((1024, 1024), torch.float32)}
    truth = torch.zeros(1024, 1024, dtype=torch.float64, device=gpu.torch_device)
    poison(specs, gpu)
    unwritten = torch.empty(1024, 1024, device=gpu.torch_device)
    verdict = judge({"o": unwritten}, specs, Reference(outputs={"o": truth}, method="zero"), 0.01)
    assert "NaN" in verdict.reason


def test_a_reference_on_the_cpu_judges_an_output_on_the_gpu(gpu: Device) -> None:
    truth = torch.randn(64, 64, dtype=torch.float64)
    specs = {"o": OutputSpec((64, 64), torch.float32)}
    output = truth.float().to(gpu.torch_device)
    verdict = judge({"o": output}, specs, Reference(outputs={"o": truth}, method="x"), 1e-6)
    assert verdict.reason is None


def test_peak_memory_counts_temporaries_but_neither_inputs_nor_outputs(gpu: Device) -> None:
    def run() -> torch.Tensor:
        temporary = torch.ones(64 * MIB, dtype=torch.uint8, device=gpu.torch_device)
        return temporary[: 16 * MIB].clone()

    run()
    assert peak_extra_bytes(run, gpu) == 64 * MIB


def test_telemetry_of_a_busy_gpu_reads_clock_power_and_temperature(
    gpu: Device, gigabyte_copy: PreparedCall
) -> None:
    telemetry = Telemetry(gpu)
    telemetry.start()
    _median_ms(make_timer("events", gpu, ColdCache(gpu)), gigabyte_copy, count=300)
    found = telemetry.stop()
    assert found["absent"] is None
    assert found["readings"] >= 3
    assert found["sm_clock_mhz_p50"] > 0
    assert found["power_w_mean"] > 0


def test_the_control_kernel_repeats_itself(gpu: Device) -> None:
    control = ControlKernel(gpu)
    first, second = control.time_ms(), control.time_ms()
    assert second == pytest.approx(first, rel=0.05)
