"""Emptying the last-level cache between calls, so that each one finds its inputs in memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchx.core.device import Device

if TYPE_CHECKING:
    import torch

_MIB = 2**20
GPU_FLUSH_BYTES = 256 * _MIB
"""Least that a GPU flush writes; the usual figure of kernel benchmarks, so figures compare."""

CPU_FLUSH_BYTES = 64 * _MIB
"""Least that a CPU flush touches, also where the size of the cache is unknown."""

L2_MULTIPLE = 4
"""A sweep of this many cache sizes leaves nothing useful behind under any replacement policy."""

MAX_COPIES = 256
"""Most rotation copies; beyond it, building them costs more than it tells."""


class ColdCache:
    """A buffer several times the last-level cache, gone through before each call.

    Args:
        device: GPU: max(256 MiB, 4 x L2) are written. CPU: max(64 MiB, 4 x all last-level
            caches this process can fill) are read.
    """

    def __init__(self, device: Device) -> None:
        import torch

        least = GPU_FLUSH_BYTES if device.is_gpu else CPU_FLUSH_BYTES
        self.nbytes = max(least, L2_MULTIPLE * device.l2_bytes)
        self._is_gpu = device.is_gpu
        # Ones, not zeros: pages that nobody wrote to are all the same page, which stays cached.
        self._buffer: torch.Tensor = torch.ones(
            self.nbytes // 8, dtype=torch.float64, device=device.torch_device
        )

    def flush(self) -> None:
        """Displace the cache; on a GPU this is queued on the current stream and returns at once.

        The GPU's L2 allocates on writes, so a fill does. A CPU may fill with non-temporal
        stores that leave the cache as it was, so there every word is read, which takes half the
        time of reading and writing and leaves nothing whose write-back the call would pay for.
        """
        if self._is_gpu:
            self._buffer.zero_()
        else:
            self._buffer.sum()


def rotation_copies(copy_bytes: int, device: Device, *, memory_share: float = 0.25) -> int:
    """Copies of an input set to rotate over so that each is cold again when its turn comes.

    `ceil(4 x L2 / copy_bytes) + 1`, at least 2, at most 256 and at most what fits in
    `memory_share` of the device's memory. With fewer bytes than 4 x L2 in total a graph timer
    notes `warm_l2`.

    Args:
        copy_bytes: Bytes of one set of inputs (`Inputs.nbytes()`).
        device: Where they live.
        memory_share: Share of the device's memory that all copies together may take.
    """
    wanted = math.ceil(L2_MULTIPLE * device.l2_bytes / max(copy_bytes, 1)) + 1
    fitting = int(device.memory_bytes * memory_share // max(copy_bytes, 1))
    return max(1, min(max(wanted, 2), MAX_COPIES, fitting))


def rotation_is_cold(copies: int, copy_bytes: int | None, device: Device) -> bool:
    """Whether `copies` sets of `copy_bytes` bytes each displace one another from the L2."""
    return copy_bytes is not None and copies * copy_bytes >= L2_MULTIPLE * device.l2_bytes > 0
