"""Where the work of a point is done, and so whose clock times it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from benchx.core.axes import Params
from benchx.core.device import Device
from benchx.measure.cache import ColdCache
from benchx.measure.cpu_timer import CpuTimer
from benchx.measure.device import host_device
from benchx.measure.gpu import synchronize
from benchx.measure.timers import Timer, make_timer
from benchx.ops.base import HostShare, Operator, SharesWithHost

_NOTES: dict[HostShare, tuple[str, ...]] = {
    "none": (),
    "part": ("host_takes_part",),
    "all": ("on_host",),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A device, and what the host of a GPU does itself.

    Events on the device see nothing of the host: its work before a copy, or instead of one, may
    pass while the device is still busy with what came before (a spin, a flush) and would cost
    nothing. So whatever the host has a share in is timed by the clock of the host.

    Attributes:
        device: Where inputs live; the CPU of a GPU machine for what runs on its host.
        host_share: See `SharesWithHost`; "none" on a machine without a GPU, where there is but
            one clock.
        within: Whether what moves stays within the device, so that its ceilings bound it. What
            the host may have a share in crosses to or from it, or never enters the device.
    """

    device: Device
    host_share: HostShare
    within: bool = True

    @property
    def on_host(self) -> bool:
        """Whether a GPU is there and has no part in it: its clocks say nothing."""
        return self.host_share == "all"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of a figure must know."""
        return _NOTES[self.host_share]

    def problem(self, timer: str) -> str | None:
        """Why a timer that the scenario names can't time this, or None."""
        by_host = self.host_share != "none" or not self.device.is_gpu
        if timer == "auto" or (timer == "cpu") == by_host:
            return None
        way_out = "set measure.timer to auto"
        if self.host_share != "none":
            does = "does this work" if self.on_host else "does a part of this work"
            return f"timer {timer!r} sees the GPU only, but the host {does}; {way_out}"
        needs = "needs a GPU" if by_host else "times CPU work only"
        return f"timer {timer!r} {needs}, this is {self.device.name}; {way_out}"

    def timer(self, name: str, cache: ColdCache | None, *, copy_bytes: int) -> Timer:
        """The timer that a scenario names, or the clock of the host; see `make_timer`."""
        if self.host_share == "part":
            return CpuTimer(cache, wait=partial(synchronize, self.device))
        return make_timer(name, self.device, cache, copy_bytes=copy_bytes)


def place_of(operator: Operator[Any], params: Params, machine: Device) -> Place:
    """The place of a point on a machine with this device."""
    if not machine.is_gpu or not isinstance(operator, SharesWithHost):
        return Place(device=machine, host_share="none")
    share = operator.host_share(params)
    device = host_device() if share == "all" else machine
    return Place(device=device, host_share=share, within=False)
