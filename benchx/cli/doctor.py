"""`benchx doctor`: what this machine is, and which backends work on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchx.cli.arguments import AsJson
from benchx.cli.terminal import print_json, print_rows, stdout

if TYPE_CHECKING:
    from benchx.cli.backends import Finding
    from benchx.core.device import Device


def doctor(*, as_json: AsJson = False) -> None:
    """Show the machine and its backends.

    What this machine is, which backends work here, and how to get the others.
    """
    from benchx.cli.adapters import adapters
    from benchx.cli.backends import find_backends
    from benchx.cli.plugins import find_broken_plugins
    from benchx.measure.device import list_devices, probe_device
    from benchx.measure.environment import snapshot

    devices, environment = list_devices(), snapshot()
    findings = find_backends(probe_device())
    broken = find_broken_plugins()
    notes = remarks(devices, [found.vendor for found in adapters()], environment)
    if as_json:
        print_json(
            {
                "environment": environment,
                "devices": [device.to_json() for device in devices],
                "notes": notes,
                "backends": [asdict(finding) for finding in findings],
                "broken_plugins": [asdict(plugin) for plugin in broken],
            }
        )
        return
    console = stdout()
    for name, text in _facts(devices, environment):
        console.print(f"{name:<10}  {text}")
    for note in notes:
        console.print(f"note: {note}")
    for plugin in broken:
        console.print(f"note: {plugin}; to use benchx with it, {plugin.remedy}", soft_wrap=True)
    console.print()
    print_rows(console, backend_rows(findings))


_FACTS = ("benchx", "python", "os", "torch", "triton", "driver", "cuda", "hip")
_LABELS = {"hip": "ROCm (HIP)", "cuda": "CUDA", "os": "system"}


def _facts(devices: Sequence[Device], environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [(_LABELS.get(name, name), str(environment.get(name) or "none")) for name in _FACTS]
    return facts + [_device_fact(device) for device in devices]


def _device_fact(device: Device) -> tuple[str, str]:
    units = "compute units" if device.is_gpu else "usable cores"
    size = f"{device.memory_bytes / 2**30:.0f} GiB, {device.compute_units} {units}"
    label = f"GPU {device.index}" if device.is_gpu else "CPU"
    return label, f"{device.name} ({device.arch}), {size}"


def remarks(
    devices: Sequence[Device], vendors: Sequence[str], environment: Mapping[str, Any]
) -> list[str]:
    """What a reader should know of GPUs that are there but can't be used.

    Args:
        devices: What torch can use.
        vendors: Maker of each GPU on the PCI bus.
        environment: From `measure.environment.snapshot`.
    """
    usable = sum(device.is_gpu for device in devices)
    if not vendors and not usable:
        return ["no GPU here: points run on the CPU, and backends that need a GPU are skipped"]
    if len(vendors) > usable:
        torch = environment.get("torch")
        makers = ", ".join(sorted(set(vendors)))
        return [
            f"{len(vendors)} GPUs on the bus ({makers}), but torch {torch} can use {usable}: "
            "a build of torch for this vendor, its driver, or access to the device is missing"
        ]
    return []


def backend_rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """One row per backend and answer, naming the operators that it holds for."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for found in findings:
        works, detail = "yes", found.version or ""
        if found.reason is not None:
            help_ = f"; install: {found.install}" if found.install else ""
            works, detail = "no", found.reason + help_
        groups.setdefault((found.backend, works, detail), []).append(found.op)
    return [
        {"backend": backend, "works": works, "for": ops, "version, or why not": detail}
        for (backend, works, detail), ops in groups.items()
    ]
