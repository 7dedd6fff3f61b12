"""Display adapters that the system sees, whether or not a driver or torch does (Linux)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PCI_DEVICES = Path("/sys/bus/pci/devices")

# PCI classes 0x0300 (VGA), 0x0302 (3D, data-centre GPUs) and 0x1200 (processing accelerator).
_CLASSES = ("0x0300", "0x0302", "0x1200")
_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}


@dataclass(frozen=True)
class Adapter:
    """One adapter: who made it and its PCI ids (`10de:2335`)."""

    vendor: str
    pci_id: str


def adapters(folder: Path = PCI_DEVICES) -> tuple[Adapter, ...]:
    """The GPUs of known vendors on the PCI bus; empty where the system does not tell."""
    found = []
    for device in sorted(folder.glob("*")):
        vendor, kind, model = (_read(device / name) for name in ("vendor", "class", "device"))
        if vendor in _VENDORS and kind.startswith(_CLASSES):
            found.append(Adapter(_VENDORS[vendor], f"{vendor[2:]}:{model[2:]}"))
    return tuple(found)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
