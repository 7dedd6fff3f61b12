"""Ways to move blocks with torch and the operating system: one by one, or packed into one copy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.ops.base import Unavailable
from benchx.ops.packages import unsupported

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from benchx.core.call import Tensors
    from benchx.ops.kv_copy import CopyInputs

ENDS = {
    "host_to_device": ("host", "device"),
    "device_to_host": ("device", "host"),
    "device_to_device": ("device", "other"),
    "memory": ("host", "host"),
}
"""Route -> where its blocks are and where they go, for routes that torch copies."""


def on_device(route: str) -> bool:
    """Whether a route begins or ends on a GPU."""
    return route == "both_ways" or "device" in ENDS.get(route, ())


def host_packs(route: str, layout: str) -> bool:
    """Whether it is the host that gathers or scatters when blocks are packed for a device."""
    return (route, layout) in (("host_to_device", "gather"), ("device_to_host", "scatter"))


@dataclass(frozen=True)
class Blocks:
    """One copy for each block: what a paged cache does without a kernel of its own."""

    name: str = "blocks"
    operator: str = "kv_copy"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Routes that this machine does not have."""
        return _missing_route(params, device)

    def prepare(self, inputs: CopyInputs) -> PreparedCall:
        """Blocks are put where the route begins; memory at its end is allocated."""
        if inputs.route.startswith("file"):
            from benchx.ops.kv_files import prepare_file

            return prepare_file(inputs)
        if inputs.route == "loopback":
            from benchx.ops.kv_loopback import prepare_loopback

            return prepare_loopback(inputs)
        if inputs.route == "both_ways":
            return _both_ways(inputs)
        copy, moved = _one_way(inputs, inputs.route)

        def run() -> Tensors:
            copy()
            return {"moved": moved}

        return PreparedCall(run=run, graph_safe=_graph_safe(inputs))

    def provenance(self) -> Mapping[str, Any]:
        """Version of torch."""
        return _torch()


@dataclass(frozen=True)
class Packed:
    """Blocks gathered into one buffer, one copy, scattered at the other end."""

    name: str = "packed"
    operator: str = "kv_copy"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Nothing to pack in order, and files and sockets are not packed by torch."""
        return unsupported(
            (params["layout"] != "contiguous", "blocks in order need no packing"),
            (params["route"] in ENDS, f"packing is for copies by torch, not {params['route']}"),
        ) or _missing_route(params, device)

    def prepare(self, inputs: CopyInputs) -> PreparedCall:
        """Buffers are allocated here."""
        begin, end = ENDS[inputs.route]
        source, moved = _placed(inputs, begin), _empty(inputs, end)
        staged = _empty(inputs, begin if inputs.layout == "gather" else end)
        order = inputs.order.to(staged.device)
        gathers = inputs.layout == "gather"
        arrives_late = source.is_cuda and not staged.is_cuda

        def run() -> Tensors:
            import torch

            if gathers:
                torch.index_select(source, 0, order, out=staged)
                moved.copy_(staged, non_blocking=True)
            else:
                staged.copy_(source, non_blocking=True)
                if arrives_late:  # the host scatters at once, not in the order of the stream
                    torch.cuda.current_stream().synchronize()
                moved.index_copy_(0, order, staged)
            return {"moved": moved}

        by_host = host_packs(inputs.route, inputs.layout)  # a graph would hold the copy only
        return PreparedCall(run=run, graph_safe=_graph_safe(inputs) and not by_host)

    def provenance(self) -> Mapping[str, Any]:
        """Version of torch."""
        return _torch()


COPY_BACKENDS = (Blocks(), Packed())


def places(inputs: CopyInputs) -> list[tuple[int, int]]:
    """(where block i is read, where it is written) for each block, in the order of the copy."""
    order: list[int] = inputs.order.tolist()
    if inputs.layout == "scatter":
        return list(enumerate(order))
    return [(place, index) for index, place in enumerate(order)]


def _missing_route(params: Params, device: Device) -> Unavailable | None:
    route = str(params["route"])
    if on_device(route) and not device.is_gpu:
        return Unavailable(
            outcome=Outcome.SKIPPED, reason=f"{route} needs a GPU; this is {device.name}"
        )
    if route == "device_to_device" and device.count < 2:
        return Unavailable(outcome=Outcome.SKIPPED, reason="device_to_device needs two GPUs")
    if route.endswith("direct"):
        from benchx.ops.kv_files import direct_problem

        folder = str(params["folder"]) or tempfile.gettempdir()
        problem = direct_problem(folder)
        if problem is not None:
            return Unavailable(outcome=Outcome.UNSUPPORTED, reason=problem)
    return None


def _both_ways(inputs: CopyInputs) -> PreparedCall:
    """Each direction on a stream of its own; the caller's stream waits for both."""
    import torch

    from benchx.measure.gpu import side_stream

    there, moved = _one_way(inputs, "host_to_device")
    back, returned = _one_way(inputs, "device_to_host")
    sides = (side_stream(), side_stream())

    def run() -> Tensors:
        main = torch.cuda.current_stream()
        # All waiting for the caller's stream comes before it waits for any of them: else the
        # second direction would wait for the first.
        for side in sides:
            side.wait_stream(main)
        for side, copy in zip(sides, (there, back), strict=True):
            with torch.cuda.stream(side):
                copy()
        for side in sides:
            main.wait_stream(side)
        return {"moved": moved, "returned": returned}

    return PreparedCall(run=run, graph_safe=inputs.pinned)


def _one_way(inputs: CopyInputs, route: str) -> tuple[Callable[[], None], Tensor]:
    begin, end = ENDS[route]
    source, moved = _placed(inputs, begin), _empty(inputs, end)
    pairs = [(source[a], moved[b]) for a, b in places(inputs)]

    def copy() -> None:
        for block, place in pairs:
            place.copy_(block, non_blocking=True)

    return copy, moved


def _placed(inputs: CopyInputs, place: str) -> Tensor:
    return _empty(inputs, place).copy_(inputs.source)


def _empty(inputs: CopyInputs, place: str) -> Tensor:
    """Memory for all blocks; host memory is page-locked only where a GPU copies it."""
    import torch

    shape, dtype = inputs.source.shape, inputs.source.dtype
    if place == "host":
        pinned = inputs.pinned and inputs.source.is_cuda
        return torch.empty(shape, dtype=dtype, pin_memory=pinned)
    return torch.empty(shape, dtype=dtype, device=_device(inputs, place))


def _device(inputs: CopyInputs, place: str) -> torch.device:
    import torch

    here = inputs.source.device
    if place == "device":
        return here
    return torch.device(here.type, 1 if (here.index or 0) == 0 else 0)


def _graph_safe(inputs: CopyInputs) -> bool:
    return inputs.pinned and inputs.route != "memory"


def _torch() -> Mapping[str, Any]:
    import torch

    return {"package": "torch", "version": torch.__version__}
