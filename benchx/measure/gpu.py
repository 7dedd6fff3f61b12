"""Typed access to the few calls of `torch.cuda` (CUDA and HIP alike) that timing needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from benchx.core.device import Device

if TYPE_CHECKING:
    import torch


def timing_event() -> torch.cuda.Event:
    """An event that can be timed; the driver makes it when it is first recorded."""
    import torch

    return cast("torch.cuda.Event", cast(Any, torch.cuda.Event)(enable_timing=True))


def elapsed_ms(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
    """Milliseconds between two events that have both happened."""
    return float(start.elapsed_time(end))


def has_happened(event: torch.cuda.Event) -> bool:
    """Whether the device has reached the event."""
    return bool(cast(Any, event).query())


def side_stream() -> torch.cuda.Stream:
    """A new stream of the current device."""
    import torch

    return cast("torch.cuda.Stream", cast(Any, torch.cuda.Stream)())


def external_stream(address: int, index: int) -> torch.cuda.Stream:
    """Somebody else's stream at `address`, on GPU `index`."""
    import torch

    found = cast(Any, torch.cuda.ExternalStream)(address, device=f"cuda:{index}")
    return cast("torch.cuda.Stream", found)


def can_spin() -> bool:
    """Whether this torch has a kernel that only waits (a private function, long in use)."""
    import torch

    return hasattr(torch.cuda, "_sleep")


def spin(cycles: int) -> None:
    """Queue a kernel that waits for so many clock cycles and touches no memory."""
    import torch

    cast(Any, torch.cuda)._sleep(cycles)


def synchronize(device: Device) -> None:
    """Wait until the device is idle; a CPU always is, between calls."""
    if device.is_gpu:
        import torch

        torch.cuda.synchronize(device.index)
