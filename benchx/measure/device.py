"""Which devices this process sees, as the drivers report them."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

from benchx.core.device import Device
from benchx.core.errors import UsageError

_SYSFS_CPUS = Path("/sys/devices/system/cpu")
_SYSFS_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


def list_devices() -> tuple[Device, ...]:
    """All GPUs in torch's order (so `CUDA_VISIBLE_DEVICES` holds), then the CPU."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return (*(_gpu(index, count) for index in range(count)), _cpu())


def probe_device(index: int = 0) -> Device:
    """GPU `index` where there is one, else the CPU; raises UsageError for an index too large."""
    devices = list_devices()
    if len(devices) == 1:
        if index == 0:
            return devices[0]
        raise UsageError(f"device {index} was asked for, but this process sees no GPU")
    if not 0 <= index < len(devices) - 1:
        raise UsageError(f"device {index} was asked for; the GPUs here are 0..{len(devices) - 2}")
    return devices[index]


@cache
def host_device() -> Device:
    """The CPU of this machine, also where it has a GPU."""
    return _cpu()


def _gpu(index: int, count: int) -> Device:
    import torch

    properties = torch.cuda.get_device_properties(index)
    is_amd = torch.version.hip is not None
    l2_bytes = int(properties.L2_cache_size)
    if is_amd:  # what torch calls L2 there is not the last level: the Infinity Cache is
        l2_bytes = max(l2_bytes, kfd_cache_bytes(_SYSFS_KFD))
    arch = (
        str(properties.gcnArchName).partition(":")[0]
        if is_amd
        else f"sm_{properties.major}{properties.minor}"
    )
    return Device(
        vendor="amd" if is_amd else "nvidia",
        torch_type="cuda",
        # Without its table of names (amdgpu.ids, which containers lack) ROCm gives an empty one.
        name=properties.name.strip() or arch,
        index=index,
        count=count,
        arch=arch,
        memory_bytes=int(properties.total_memory),
        l2_bytes=l2_bytes,
        compute_units=int(properties.multi_processor_count),
    )


def _cpu() -> Device:
    import psutil

    return Device(
        vendor="cpu",
        torch_type="cpu",
        name=cpu_name(),
        index=0,
        count=1,
        arch=platform.machine(),
        memory_bytes=int(psutil.virtual_memory().total),
        l2_bytes=cpu_cache_bytes(_SYSFS_CPUS, usable_cpus()),
        compute_units=len(usable_cpus()),
    )


def usable_cpus() -> frozenset[int]:
    """The CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def cpu_name() -> str:
    """The CPU's marketing name, or the machine type where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return _sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine()


def cpu_cache_bytes(sysfs: Path, cpus: frozenset[int]) -> int:
    """Bytes of all last-level caches that `cpus` can fill (each shared one once); 0 if unknown.

    Args:
        sysfs: The folder with `cpuN/cache/indexM/{level,size,shared_cpu_list}` (Linux).
        cpus: CPUs this process may run on.
    """
    caches: dict[tuple[int, str], int] = {}
    for cpu in sorted(cpus):
        for folder in (sysfs / f"cpu{cpu}" / "cache").glob("index*"):
            level, size, shared = (_read(folder / name) for name in _CACHE_FILES)
            if level.isdecimal() and size:
                caches[int(level), shared or str(cpu)] = _sysfs_bytes(size)
    if caches:
        last = max(level for level, _ in caches)
        return sum(size for (level, _), size in caches.items() if level == last)
    text = _sysctl("hw.l3cachesize") or _sysctl("hw.l2cachesize")
    return int(text) if text.isdecimal() else 0


def kfd_cache_bytes(nodes: Path) -> int:
    """The largest cache of any AMD GPU in the kernel's topology, in bytes; 0 if unknown.

    Args:
        nodes: The folder with `N/caches/M/properties`, whose `size` is in KiB; nodes without
            `simd_count` are CPUs.
    """
    sizes = [0]
    for node in nodes.glob("*"):
        if _property(node / "properties", "simd_count") == 0:
            continue
        sizes += [_property(c, "size") * 1024 for c in node.glob("caches/*/properties")]
    return max(sizes)


_CACHE_FILES = ("level", "size", "shared_cpu_list")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _property(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return 0


def _sysfs_bytes(text: str) -> int:
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def _sysctl(name: str) -> str:
    if platform.system() != "Darwin":
        return ""
    found = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
    return found.stdout.strip()
