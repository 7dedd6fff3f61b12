"""Devices are described as observed, and unknowns are not invented."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchx.core.device import Device
from benchx.core.errors import UsageError
from benchx.measure import device as devices
from benchx.measure.cache import CPU_FLUSH_BYTES, ColdCache, rotation_copies, rotation_is_cold


def _cache(sysfs: Path, cpu: int, index: int, level: int, size: str, shared: str) -> None:
    folder = sysfs / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    (folder / "level").write_text(f"{level}\n")
    (folder / "size").write_text(f"{size}\n")
    (folder / "shared_cpu_list").write_text(f"{shared}\n")


def test_the_cpu_is_always_listed_last() -> None:
    listed = devices.list_devices()
    assert listed[-1].torch_device == "cpu"
    assert listed[-1].compute_units >= 1
    assert listed[-1].memory_bytes > 2**28


def test_a_device_index_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="device 99"):
        devices.probe_device(99)


def test_shared_last_level_caches_count_once(tmp_path: Path) -> None:
    for cpu in range(4):
        _cache(tmp_path, cpu, 2, 2, "512K", str(cpu))
        _cache(tmp_path, cpu, 3, 3, "32768K", "0-1" if cpu < 2 else "2-3")
    assert devices.cpu_cache_bytes(tmp_path, frozenset({0, 1, 2, 3})) == 64 * 2**20


def test_caches_this_process_cannot_use_do_not_count(tmp_path: Path) -> None:
    for cpu, shared in ((0, "0"), (1, "1")):
        _cache(tmp_path, cpu, 3, 3, "16M", shared)
    assert devices.cpu_cache_bytes(tmp_path, frozenset({1})) == 16 * 2**20


def test_an_unknown_cpu_cache_is_zero_and_still_flushed(tmp_path: Path, cpu: Device) -> None:
    assert devices.cpu_cache_bytes(tmp_path, frozenset({0})) == 0
    assert ColdCache(cpu).nbytes == CPU_FLUSH_BYTES


def test_the_infinity_cache_of_an_amd_gpu_is_found_and_the_cpu_s_is_not(tmp_path: Path) -> None:
    for node, simds, size in (("0", 0, 999_999), ("1", 304, 262_144)):
        folder = tmp_path / node / "caches" / "0"
        folder.mkdir(parents=True)
        (tmp_path / node / "properties").write_text(f"cpu_cores_count 1\nsimd_count {simds}\n")
        (folder / "properties").write_text(f"level 3\nsize {size}\n")
    assert devices.kfd_cache_bytes(tmp_path) == 256 * 2**20
    assert devices.kfd_cache_bytes(tmp_path / "absent") == 0


@pytest.mark.parametrize(
    ("hip", "name", "vendor", "arch", "l2_mib"),
    [
        ("7.0", "AMD Instinct MI300X", "amd", "gfx942", 256),
        ("7.0", "", "amd", "gfx942", 256),
        (None, "NVIDIA H200", "nvidia", "sm_90", 60),
    ],
)
def test_all_gpus_that_torch_sees_are_described_in_its_order(
    monkeypatch: pytest.MonkeyPatch,
    hip: str | None,
    name: str,
    vendor: str,
    arch: str,
    l2_mib: int,
) -> None:
    properties = SimpleNamespace(
        name=name,
        gcnArchName="gfx942:sramecc+:xnack-",
        major=9,
        minor=0,
        total_memory=2**37,
        L2_cache_size=60 * 2**20,
        multi_processor_count=132,
    )
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(devices, "kfd_cache_bytes", lambda nodes: 256 * 2**20)
    first, second, host = devices.list_devices()
    assert (first.torch_device, second.torch_device, host.torch_device) == (
        "cuda:0",
        "cuda:1",
        "cpu",
    )
    assert (second.vendor, second.name, second.arch) == (vendor, name or arch, arch)
    assert (second.count, second.l2_bytes) == (2, l2_mib * 2**20)
    assert devices.probe_device(1) == second
    with pytest.raises(UsageError, match=r"the GPUs here are 0\.\.1"):
        devices.probe_device(2)


def test_no_page_of_the_flushed_buffer_is_the_kernel_s_page_of_zeros(cpu: Device) -> None:
    assert bool(ColdCache(cpu)._buffer.all())


def test_reading_a_small_buffer_after_a_flush_is_slower() -> None:
    cache = ColdCache(devices.list_devices()[-1])
    buffer = torch.ones(2**20 // 4)

    def read_ms(before: Callable[[], object]) -> float:
        before()
        start_ns = time.perf_counter_ns()
        buffer.sum()
        return (time.perf_counter_ns() - start_ns) / 1e6

    # The quickest of many: other work on the machine slows single ones down.
    warm_ms, cold_ms = (
        min(read_ms(before) for _ in range(40)) for before in (buffer.sum, cache.flush)
    )
    assert cold_ms > 1.2 * warm_ms


def test_rotation_touches_four_times_the_l2(gpu_like: Device) -> None:
    copies = rotation_copies(2**20, gpu_like)
    assert copies * 2**20 >= 4 * gpu_like.l2_bytes
    assert rotation_is_cold(copies, 2**20, gpu_like)


def test_rotation_of_tiny_inputs_is_bounded_and_admits_to_be_warm(gpu_like: Device) -> None:
    copies = rotation_copies(1024, gpu_like)
    assert copies == 256
    assert not rotation_is_cold(copies, 1024, gpu_like)


def test_rotation_of_huge_inputs_stays_within_memory(gpu_like: Device) -> None:
    assert rotation_copies(gpu_like.memory_bytes // 2, gpu_like) == 1


def test_a_rotation_of_unknown_size_is_not_called_cold(gpu_like: Device) -> None:
    assert not rotation_is_cold(1000, None, gpu_like)
