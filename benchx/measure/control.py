"""A fixed piece of work, timed before and after the points: if it moved, the machine did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.cache import ColdCache
from benchx.measure.gpu import synchronize
from benchx.measure.timers import make_timer
from benchx.measure.warmup import warm_up
from benchx.stats.summary import median

if TYPE_CHECKING:
    import torch

_MIB = 2**20
_SAMPLES = 15
_WARM_UP_S = 0.5
"""Longest that a look waits for equal times; the machine may be such that there are none."""

_SEED = 0


@dataclass(frozen=True)
class WorkSize:
    """Size of a copy and of a square matrix product, and the dtype of the latter."""

    copy_bytes: int
    matrix: int
    dtype: str

    def within(self, device: Device) -> WorkSize:
        """The same, its copy cut down to an eighth of the device's memory if need be."""
        return replace(self, copy_bytes=min(self.copy_bytes, device.memory_bytes // 8))


GPU_CONTROL = WorkSize(256 * _MIB, 2048, "bfloat16")
CPU_CONTROL = WorkSize(32 * _MIB, 256, "float32")


@dataclass(frozen=True)
class ControlTimes:
    """Medians of both halves; apart, because a change of card may move only one of them."""

    copy_ms: float
    product_ms: float


class ControlKernel:
    """A copy and a matrix product of fixed size on `device`.

    GPU: 256 MiB and bf16 2048^3, with flushes that keep the host ahead. CPU: 32 MiB and fp32
    256^3, without: it need not be cold to be the same each time, and a flush takes longer.

    Each is warmed up before each look: 15 samples take less time than the clocks of a card that
    was idle take to rise.
    """

    def __init__(self, device: Device) -> None:
        size = GPU_CONTROL if device.is_gpu else CPU_CONTROL
        self._copy = copy_call(device, size.copy_bytes)
        self._product = product_call(device, size.matrix, size.dtype)
        self._timer = make_timer("auto", device, ColdCache(device) if device.is_gpu else None)
        self._device = device

    def times_ms(self) -> ControlTimes:
        """Medians of 15 samples of each, warm."""
        return ControlTimes(
            copy_ms=self._median_ms(self._copy), product_ms=self._median_ms(self._product)
        )

    def _median_ms(self, call: PreparedCall) -> float:
        warm_up(call, self._device, max_time_s=_WARM_UP_S)
        return median(self._timer.sample([call], _SAMPLES).device_time_ms)

    def time_ms(self) -> float:
        """Copy and product together."""
        times = self.times_ms()
        return times.copy_ms + times.product_ms


def copy_call(device: Device, nbytes: int) -> PreparedCall:
    """Copies `nbytes` from one buffer into another; moves twice that, read and written."""
    import torch

    source = torch.ones(nbytes // 4, dtype=torch.float32, device=device.torch_device)
    target = torch.empty_like(source)
    return _call(lambda: target.copy_(source), device)


def product_call(device: Device, matrix: int, dtype: str) -> PreparedCall:
    """Multiplies two square matrices of seeded normal values (zeros would run faster)."""
    import torch

    generator = torch.Generator(device=device.torch_device).manual_seed(_SEED)
    left, right = (
        torch.randn(matrix, matrix, generator=generator, device=device.torch_device).to(
            getattr(torch, dtype)
        )
        for _ in range(2)
    )
    out = torch.empty_like(left)
    return _call(lambda: torch.matmul(left, right, out=out), device)


def _call(work: Callable[[], torch.Tensor], device: Device) -> PreparedCall:
    synchronize(device)
    return PreparedCall(run=lambda: {"out": work()})
