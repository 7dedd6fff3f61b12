"""Many calls in one CUDA or HIP graph: device time without the host, for small kernels."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure import gpu
from benchx.measure.cache import ColdCache, rotation_is_cold
from benchx.measure.sampling import SampleBatch, TimerUnsupported, gpu_call_time_ms, restore

if TYPE_CHECKING:
    import torch

_REPLAY_MS = 5.0
"""A replay lasts at least this long: what a graph adds once (5 to 7 us) is then under 0.15 %."""

_MAX_UNROLLED = 1000
_WARM_UP_CALLS = 3


@dataclass(frozen=True)
class _Captured:
    """A graph of `unrolled` calls; `calls` keeps alive what the graph points at."""

    graph: torch.cuda.CUDAGraph
    unrolled: int
    calls: tuple[PreparedCall, ...]


class GraphTimer:
    """`n` calls unrolled over rotating copies, captured once; a sample is replay time / n.

    Nothing is subtracted. A graph costs 5 to 7 us once per replay (seen on Hopper), so n is
    chosen for replays of 5 ms or more; a call that changes its inputs runs once per copy and
    replay (it is reset between replays), and where that leaves replays under 0.5 ms the note
    `graph_overhead` says that the figure may hold over 1 % of it.

    Flushing inside a graph would be timed, so cold means rotation: the copies together must
    hold 4 x L2 or more (`cache.rotation_copies`); when they do not, or their size was not given,
    the note is `warm_l2`. Outputs of one rotation stay alive during capture, so that they
    rotate too. `host_time_ms` is the host's time to launch one replay / n.

    A copy between buffers of the device (`Tensor.copy_`) becomes a memcpy node, which a copy
    engine may execute where a stream uses a kernel: 2 GiB took 1.55 ms in a graph and 1.01 ms in
    a stream (H200, torch 2.11). The figure is right, but it is one of other hardware.

    Args:
        device: The GPU.
        cache: None asks for warm: no note. Flushed once before each replay.
        copy_bytes: Bytes of one call's inputs.
    """

    name = "graph"
    synchronous = False

    def __init__(
        self, device: Device, cache: ColdCache | None, *, copy_bytes: int | None = None
    ) -> None:
        self._device, self._cache, self._copy_bytes = device, cache, copy_bytes
        self._captured: dict[tuple[int, ...], _Captured] = {}

    def sample(
        self, calls: Sequence[PreparedCall], count: int, *, opened: bool = False
    ) -> SampleBatch:
        """See `Timer.sample`; untimed calls come first where they are captured, whatever `opened`.

        Raises:
            TimerUnsupported: A call that can't be captured.
        """
        import torch

        with torch.cuda.device(self._device.index):
            captured = self._capture_once(calls)
            start, end = (gpu.timing_event() for _ in range(2))
            device_ms, host_ms = [], []
            for _ in range(count):
                restore(captured.calls, self._cache)
                start.record()
                began_ns = time.perf_counter_ns()
                captured.graph.replay()
                host_ms.append((time.perf_counter_ns() - began_ns) / 1e6 / captured.unrolled)
                end.record()
                torch.cuda.synchronize()
                device_ms.append(gpu.elapsed_ms(start, end) / captured.unrolled)
        notes = self._notes(len(calls), min(device_ms, default=math.inf) * captured.unrolled)
        return SampleBatch(
            device_time_ms=tuple(device_ms), host_time_ms=tuple(host_ms), notes=notes
        )

    def call_time_ms(self, call: PreparedCall, count: int) -> tuple[float, ...]:
        """See `Timer.call_time_ms`; the call as Python makes it, not a replay."""
        return gpu_call_time_ms(call, count, device=self._device, cache=self._cache)

    def _notes(self, copies: int, replay_ms: float) -> tuple[str, ...]:
        is_cold = rotation_is_cold(copies, self._copy_bytes, self._device)
        notes = ("warm_l2",) if self._cache is not None and not is_cold else ()
        return (*notes, "graph_overhead") if replay_ms < _REPLAY_MS / 10 else notes

    def _capture_once(self, calls: Sequence[PreparedCall]) -> _Captured:
        key = tuple(map(id, calls))
        if key not in self._captured:
            self._captured[key] = self._capture(tuple(calls))
        return self._captured[key]

    def _capture(self, calls: tuple[PreparedCall, ...]) -> _Captured:
        import torch

        if not all(call.graph_safe for call in calls):
            raise TimerUnsupported(
                "the backend says its call can't be captured in a graph", hint="use timer: events"
            )
        stream = gpu.side_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call_ms = _warm_up_ms(calls)
        torch.cuda.synchronize()
        restore(calls, self._cache)
        torch.cuda.synchronize()
        stateful = any(call.reset is not None for call in calls)
        unrolled = unrolled_calls(call_ms, len(calls), stateful=stateful)
        try:
            graph = _unroll(calls, unrolled, stream)
        except RuntimeError as error:
            if "captur" not in str(error).lower():
                raise
            first_line = str(error).partition("\n")[0]
            raise TimerUnsupported(
                f"the call can't be captured in a graph: {first_line}", hint="use timer: events"
            ) from error
        graph.replay()  # the first replay uploads the graph
        torch.cuda.synchronize()
        return _Captured(graph, unrolled, calls)


def unrolled_calls(call_ms: float, copies: int, *, stateful: bool) -> int:
    """Calls in one graph: whole rotations that last 5 ms or more; one rotation when stateful."""
    if stateful:
        return copies
    wanted = min(_MAX_UNROLLED, math.ceil(_REPLAY_MS / max(call_ms, 1e-6)))
    return copies * math.ceil(wanted / copies)


def _unroll(
    calls: tuple[PreparedCall, ...], unrolled: int, stream: torch.cuda.Stream
) -> torch.cuda.CUDAGraph:
    import torch

    graph = torch.cuda.CUDAGraph()
    outputs: list[object] = [None] * len(calls)
    collects = gc.isenabled()
    gc.disable()  # freeing somebody's device object would break the capture
    try:
        with torch.cuda.graph(graph, stream=stream):
            for index in range(unrolled):
                outputs[index % len(calls)] = calls[index % len(calls)].run()
    finally:
        if collects:
            gc.enable()
    return graph


def _warm_up_ms(calls: tuple[PreparedCall, ...]) -> float:
    """Run every copy once and the first three times (handles, JIT); milliseconds per call."""
    import torch

    for index in range(_WARM_UP_CALLS):
        calls[index % len(calls)].run()
    start, end = (gpu.timing_event() for _ in range(2))
    start.record()
    for call in calls:
        call.run()
    end.record()
    torch.cuda.synchronize()
    return gpu.elapsed_ms(start, end) / len(calls)
