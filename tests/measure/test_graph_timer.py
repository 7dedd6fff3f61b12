"""The graph timer's arithmetic on a fake device: what is captured, timed and divided by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure import graph_timer
from benchx.measure.graph_timer import GraphTimer

FLUSH_MS, RESET_MS = 100.0, 10.0


@dataclass
class FakeGraph:
    """Nodes that were captured; each is work of so many milliseconds, done when replayed."""

    gpu: FakeGpu
    nodes: list[tuple[str, float]] = field(default_factory=list)
    replays: int = 0

    def replay(self) -> None:
        self.replays += 1
        for name, ms in self.nodes:
            self.gpu.work(name, ms)


@dataclass
class FakeGpu:
    """A device whose clock moves by the work it is given; inside a capture, work is only noted."""

    now_ms: float = 0.0
    log: list[str] = field(default_factory=list)
    graphs: list[FakeGraph] = field(default_factory=list)
    capturing: FakeGraph | None = None

    def work(self, name: str, ms: float) -> None:
        if self.capturing is not None:
            self.capturing.nodes.append((name, ms))
            return
        self.log.append(name)
        self.now_ms += ms

    def call(self, name: str, ms: float, *, stateful: bool = False) -> PreparedCall:
        def run() -> dict[str, object]:
            self.work(name, ms)
            return {}

        reset = (lambda: self.work("reset", RESET_MS)) if stateful else None
        return PreparedCall(run=run, reset=reset)

    def flush(self) -> None:
        self.work("flush", FLUSH_MS)

    def event(self) -> SimpleNamespace:
        event = SimpleNamespace(at_ms=None)
        event.record = lambda: setattr(event, "at_ms", self.now_ms)
        return event

    def graph(self) -> FakeGraph:
        self.graphs.append(FakeGraph(self))
        return self.graphs[-1]

    @contextmanager
    def capture(self, graph: FakeGraph, **_: object) -> Iterator[None]:
        self.capturing = graph
        yield
        self.capturing = None


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    functions: dict[str, Callable[..., object]] = {
        "timing_event": fake.event,
        "elapsed_ms": lambda start, end: end.at_ms - start.at_ms,
        "side_stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
    }
    monkeypatch.setattr(graph_timer, "gpu", SimpleNamespace(**functions))
    for name, replacement in {
        "device": lambda index: nullcontext(),
        "stream": lambda stream: nullcontext(),
        "current_stream": lambda: None,
        "synchronize": lambda: None,
        "CUDAGraph": fake.graph,
        "graph": fake.capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    return fake


def test_a_sample_is_the_time_of_one_call_whatever_is_unrolled(
    fake_gpu: FakeGpu, gpu_like: Device
) -> None:
    timer = GraphTimer(gpu_like, fake_gpu, copy_bytes=2**30)  # type: ignore[arg-type]
    calls = [fake_gpu.call("a", 0.5), fake_gpu.call("b", 0.5), fake_gpu.call("c", 0.5)]
    batch = timer.sample(calls, 4)
    assert batch.device_time_ms == pytest.approx([0.5] * 4)
    assert [name for name, _ in fake_gpu.graphs[0].nodes] == ["a", "b", "c"] * 4
    assert batch.notes == ()


def test_copies_of_unequal_length_count_by_their_mean(fake_gpu: FakeGpu, gpu_like: Device) -> None:
    timer = GraphTimer(gpu_like, None)
    batch = timer.sample([fake_gpu.call("a", 0.5), fake_gpu.call("b", 1.5)], 1)
    assert batch.device_time_ms == pytest.approx([1.0])


def test_flush_and_reset_come_before_each_replay_and_are_not_in_the_sample(
    fake_gpu: FakeGpu, gpu_like: Device
) -> None:
    timer = GraphTimer(gpu_like, fake_gpu, copy_bytes=2**30)  # type: ignore[arg-type]
    call = fake_gpu.call("a", 2.0, stateful=True)
    timer.sample([call], 1)
    fake_gpu.log.clear()
    batch = timer.sample([call], 2)
    assert fake_gpu.log == ["reset", "flush", "a"] * 2
    assert batch.device_time_ms == pytest.approx([2.0, 2.0])


def test_a_graph_is_captured_once_for_the_same_calls(fake_gpu: FakeGpu, gpu_like: Device) -> None:
    timer = GraphTimer(gpu_like, None)
    calls = [fake_gpu.call("a", 2.0)]
    for _ in range(3):
        timer.sample(calls, 5)
    assert len(fake_gpu.graphs) == 1
    assert fake_gpu.graphs[0].replays == 1 + 3 * 5  # the first one uploads the graph


def test_neither_flush_nor_reset_is_part_of_a_graph(fake_gpu: FakeGpu, gpu_like: Device) -> None:
    timer = GraphTimer(gpu_like, fake_gpu, copy_bytes=2**30)  # type: ignore[arg-type]
    timer.sample([fake_gpu.call("a", 0.1, stateful=True)], 1)
    assert {name for name, _ in fake_gpu.graphs[0].nodes} == {"a"}


def test_a_short_replay_that_can_not_be_longer_is_noted(
    fake_gpu: FakeGpu, gpu_like: Device
) -> None:
    timer = GraphTimer(gpu_like, None)
    assert timer.sample([fake_gpu.call("a", 0.1, stateful=True)], 1).notes == ("graph_overhead",)
    assert timer.sample([fake_gpu.call("b", 0.1)], 1).notes == ()
