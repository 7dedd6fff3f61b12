"""Which GPUs an engine occupies, as the driver sees it: observed, never taken from a setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from benchx.core.outcome import Outcome
from benchx.serving.engines.process import EngineFailed

OCCUPIED_BYTES = 512 * 2**20
"""A serving engine takes more memory than this on every GPU that it uses; a driver less."""


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """GPUs that an engine occupies.

    Attributes:
        count: How many; None when nobody can tell.
        source: How that is known: `nvml`, `amdsmi`, `declared` or `no_gpu`.
        names: Their names.
    """

    count: int | None
    source: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryReading:
    """Used memory of every GPU of this machine at one moment.

    Attributes:
        source: Library that told; None when there is none.
        used_bytes: Index -> bytes.
        names: Index -> name.
    """

    source: str | None
    used_bytes: Mapping[int, int]
    names: Mapping[int, str]


def read_memory() -> MemoryReading:
    """Ask the drivers that are here; a machine without a GPU has an empty reading."""
    return _nvidia() or _amd() or MemoryReading(None, {}, {})


def gpus_in_use(
    before: MemoryReading, after: MemoryReading, *, declared: int | None, asked: int
) -> GpuUse:
    """GPUs whose used memory rose between two readings.

    Args:
        before: Reading before the engine was started.
        after: Reading once it was ready.
        declared: What the scenario says, or None.
        asked: GPUs that the engine's splits (tensor x pipeline x data) need.

    Raises:
        EngineFailed: When the scenario declares another number than is observed.
    """
    if after.source is None:
        return GpuUse(count=0, source="no_gpu")
    used = [
        index
        for index, size in after.used_bytes.items()
        if size - before.used_bytes.get(index, 0) >= OCCUPIED_BYTES
    ]
    said = asked if declared is None else declared
    if used and (declared is not None or asked > 1) and len(used) != said:
        raise EngineFailed(
            f"the engine occupies {len(used)} GPUs and the scenario says {said}",
            outcome=Outcome.CRASHED,
            hint="figures per GPU would be wrong; correct `engine.gpus` or the parallel settings",
        )
    names = tuple(after.names[index] for index in used)
    return GpuUse(count=len(used), source=after.source, names=names)


def _nvidia() -> MemoryReading | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return _read_nvml(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _read_nvml(nvml: ModuleType) -> MemoryReading:
    used, names = {}, {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        used[index] = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        names[index] = str(nvml.nvmlDeviceGetName(handle))
    return MemoryReading("nvml", used, names)


def _amd() -> MemoryReading | None:
    try:
        import amdsmi
    except (ImportError, OSError, KeyError):  # the binding looks for ROCm while it is imported
        return None
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException:
        return None
    try:
        return _read_amdsmi(amdsmi)
    finally:
        amdsmi.amdsmi_shut_down()


def _read_amdsmi(smi: ModuleType) -> MemoryReading:
    used, names = {}, {}
    for index, handle in enumerate(smi.amdsmi_get_processor_handles()):
        vram = smi.amdsmi_get_gpu_vram_usage(handle)
        used[index] = int(vram["vram_used"]) * 2**20
        names[index] = str(smi.amdsmi_get_gpu_asic_info(handle)["market_name"])
    return MemoryReading("amdsmi", used, names)
