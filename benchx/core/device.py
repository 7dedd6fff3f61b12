"""What is known of the device a point runs on; probing lives in `measure.device`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Vendor = Literal["nvidia", "amd", "cpu"]


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device as observed.

    Attributes:
        vendor: Who made it; decides nothing by itself, backends ask for what they need.
        torch_type: `cuda` (also for ROCm builds of torch) or `cpu`.
        name: Name as the driver reports it.
        index: Ordinal of the device in this process.
        count: How many such devices the process sees (observed, never assumed).
        arch: `sm_90`, `gfx942`, or the CPU's machine (`x86_64`).
        memory_bytes: Total memory.
        l2_bytes: Last-level cache that a cold measurement must displace.
        compute_units: Multiprocessors, compute units or cores.
    """

    vendor: Vendor
    torch_type: Literal["cuda", "cpu"]
    name: str
    index: int
    count: int
    arch: str
    memory_bytes: int
    l2_bytes: int
    compute_units: int

    @property
    def is_gpu(self) -> bool:
        """Whether work on it is asynchronous."""
        return self.torch_type == "cuda"

    @property
    def torch_device(self) -> str:
        """Text for `torch.device`."""
        return f"cuda:{self.index}" if self.is_gpu else "cpu"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
