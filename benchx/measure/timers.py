"""Choosing a timer by name."""

from __future__ import annotations

from benchx.core.device import Device
from benchx.core.errors import UsageError, unknown_word
from benchx.measure import gpu
from benchx.measure.cache import ColdCache
from benchx.measure.cpu_timer import CpuTimer
from benchx.measure.event_timer import EventTimer
from benchx.measure.graph_timer import GraphTimer
from benchx.measure.sampling import SampleBatch, Timer, TimerUnsupported

__all__ = ["TIMERS", "SampleBatch", "Timer", "TimerUnsupported", "make_timer"]

TIMERS = {
    "auto": "events_spin on a GPU (events where torch can't spin), cpu for work of the host",
    "events": "device events around each call, queued as a user would",
    "events_spin": "events, with the device kept busy until the call is fully queued",
    "graph": "many calls in one graph over rotating copies",
    "cpu": "monotonic clock around each call, from an idle device until it is idle again",
}
"""Timer name -> one line of explanation."""


def make_timer(
    timer: str, device: Device, cache: ColdCache | None, *, copy_bytes: int | None = None
) -> Timer:
    """The timer called `timer` on `device`.

    Args:
        timer: A key of `TIMERS`.
        device: Where the calls run.
        cache: Makes each sample cold; None measures warm.
        copy_bytes: Bytes of one set of inputs. The graph timer needs it to know whether the
            rotation is cold; without it, it notes `warm_l2`.

    Raises:
        UsageError: An unknown name, or a timer that this device does not have.
    """
    if timer not in TIMERS:
        raise unknown_word("timer", timer, TIMERS)
    if timer == "auto":
        timer = _automatic(device)
    if (timer == "cpu") == device.is_gpu:
        fitting = "events, events_spin or graph" if device.is_gpu else "cpu"
        raise UsageError(f"timer {timer!r} can't time work on {device.name}; use {fitting}")
    if timer == "cpu":
        return CpuTimer(cache)
    if timer == "graph":
        return GraphTimer(device, cache, copy_bytes=copy_bytes)
    return EventTimer(device, cache, spin=timer == "events_spin")


def _automatic(device: Device) -> str:
    """What `auto` stands for.

    On a GPU the time of the kernels themselves: launch gaps depend on the host's mood and on how
    a call is bound to Python, and `call_time_ms` and `host_time_ms` tell of these.
    """
    if not device.is_gpu:
        return "cpu"
    return "events_spin" if gpu.can_spin() else "events"
