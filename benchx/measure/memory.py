"""Device memory that one call needs beyond its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable

from benchx.core.device import Device


def peak_extra_bytes(run: Callable[[], object], device: Device) -> int | None:
    """Peak of allocated bytes during `run` minus what is allocated while its result is held.

    So neither inputs nor outputs count, nor workspaces made in `prepare`. Only torch's
    allocator is seen: what a library takes from the driver by itself is not. Call it warm, so
    that one-time caches are not charged to the call. None on a CPU, where it is not measured.
    """
    if not device.is_gpu:
        return None
    import torch

    torch.cuda.synchronize(device.index)
    torch.cuda.reset_peak_memory_stats(device.index)
    result = run()
    torch.cuda.synchronize(device.index)
    held = torch.cuda.memory_allocated(device.index)
    peak = torch.cuda.max_memory_allocated(device.index)
    del result
    return peak - held
