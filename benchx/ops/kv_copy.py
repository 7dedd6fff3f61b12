"""`kv_copy`: moving cached blocks between device, host memory and files.

What loading a prefix costs, and offloading one. A call moves `total_bytes` in blocks; a paged
cache gathers them from, or scatters them to, random places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.axes import AxisSpec, Params
from benchx.core.call import OutputSpec, Reference
from benchx.core.record import Work
from benchx.core.units import format_bytes
from benchx.ops.base import HostShare, register
from benchx.ops.kv_copy_backends import COPY_BACKENDS, host_packs, on_device
from benchx.ops.linear_inputs import TensorFields

if TYPE_CHECKING:
    import torch

LOADS = ("host_to_device", "device_to_device", "memory", "file_read", "file_read_direct",
         "loopback")  # fmt: skip
"""Routes that bring a cached prefix closer: the tiers of `benchx kv`."""

STORES = ("device_to_host", "file_write", "file_write_direct")
BOTH_WAYS = "both_ways"
ITEM = 4
"""Bytes of an element: blocks are float32, so that a check sees every byte."""

DIRECT_GRAIN = 4096
"""Direct file access takes whole pages at page boundaries."""

AXES: Mapping[str, AxisSpec] = {
    "route": AxisSpec(type="str", doc="from where to where", choices=(*LOADS, *STORES, BOTH_WAYS)),
    "block_bytes": AxisSpec(type="bytes", doc="size of a block, such as 4KiB", minimum=ITEM),
    "total_bytes": AxisSpec(type="bytes", doc="size of what a call moves in one direction",
                            default=64 * 2**20, minimum=ITEM),
    "layout": AxisSpec(type="str", doc="blocks in order, from random places, to random places",
                       default="contiguous", choices=("contiguous", "gather", "scatter")),
    "pinned": AxisSpec(type="bool", doc="page-locked host memory", default=True),
    "folder": AxisSpec(type="str", doc="where files are made; empty: the temporary folder",
                       default=""),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyInputs(TensorFields):
    """Blocks to move; a backend puts them where the route begins.

    Attributes:
        source: float32 [blocks, elements].
        order: int64 [blocks]: block i comes from place `order[i]` (gather), or goes to it.
        route: See `AXES`.
        layout: See `AXES`.
        pinned: See `AXES`.
        folder: See `AXES`.
    """

    source: torch.Tensor
    order: torch.Tensor
    route: str
    layout: str
    pinned: bool
    folder: str


class KvCopy:
    """Definition of the operator. Output `moved` [blocks, elements] float32, where it arrived.

    `both_ways` also has `returned`, the blocks that went the other way meanwhile.
    """

    name: str = "kv_copy"
    title: str = "copies of cached blocks"
    axes: Mapping[str, AxisSpec] = AXES
    max_rms_ratio: float = 1e-12  # a copy is exact

    def problem(self, params: Params) -> str | None:
        """Blocks that are no whole elements or pages, or do not divide what is moved."""
        block, total = int(params["block_bytes"]), int(params["total_bytes"])
        grain = DIRECT_GRAIN if str(params["route"]).endswith("direct") else ITEM
        if block % grain:
            return f"block_bytes {block} must be a multiple of {grain} on {params['route']}"
        if total % block:
            return f"total_bytes {format_bytes(total)} is no whole number of blocks of {block} B"
        return None

    def make_inputs(self, params: Params, *, seed: int, device: torch.device) -> CopyInputs:
        """Random blocks, random places where the layout is paged."""
        import torch

        block, total = int(params["block_bytes"]), int(params["total_bytes"])
        drawn = torch.Generator().manual_seed(seed)
        count = total // block
        paged = params["layout"] != "contiguous"
        order = torch.randperm(count, generator=drawn) if paged else torch.arange(count)
        fast = torch.Generator(device).manual_seed(seed)
        return CopyInputs(
            source=torch.rand(count, block // ITEM, generator=fast, device=device),
            order=order,
            route=str(params["route"]),
            layout=str(params["layout"]),
            pinned=bool(params["pinned"]),
            folder=str(params["folder"]),
        )

    def output_specs(self, inputs: CopyInputs) -> Mapping[str, OutputSpec]:
        """As above."""
        spec = OutputSpec(tuple(inputs.source.shape), inputs.source.dtype)
        return dict.fromkeys(_outputs(inputs.route), spec)

    def reference(self, inputs: CopyInputs) -> Reference:
        """The blocks in their new places."""
        order = inputs.order.to(inputs.source.device)
        moved = inputs.source
        if inputs.layout == "gather":
            moved = moved.index_select(0, order)
        elif inputs.layout == "scatter":
            moved = moved.new_empty(moved.shape).index_copy_(0, order, moved)
        moved = moved.double()
        return Reference(
            outputs=dict.fromkeys(_outputs(inputs.route), moved), method="the blocks themselves"
        )

    def host_share(self, params: Params) -> HostShare:
        """See `SharesWithHost`: blocks that stay on the host, and those that it handles itself.

        The driver has the host copy memory that is not page-locked, through a buffer of its own.
        Packing is asked about though not every backend packs: those of a group are compared.
        """
        route = str(params["route"])
        if not on_device(route):
            return "all"
        staged = not params["pinned"] and route != "device_to_device"
        return "part" if staged or host_packs(route, str(params["layout"])) else "none"

    def work(self, params: Params) -> Work:
        """Bytes that cross, in both directions where there are two; no FLOPs, no tokens."""
        total = int(params["total_bytes"])
        return Work(
            flops=0.0,
            min_bytes=total * (2 if params["route"] == BOTH_WAYS else 1),
            tokens=0,
            kv_cache_bytes=0,
            kv_state_bytes=0,
            leaves_kv=False,
        )


def _outputs(route: str) -> tuple[str, ...]:
    return ("moved", "returned") if route == BOTH_WAYS else ("moved",)


register(KvCopy(), *COPY_BACKENDS)
