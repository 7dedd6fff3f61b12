"""What a look at a device yields, and the protocol of those who look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from benchx.core.device import Device


class TelemetryLost(Exception):
    """A source can't be opened or stopped answering; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One look at the device; None where the source does not tell.

    Attributes:
        throttle: Reasons for lowered clocks in force right now.
    """

    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    cpu_clock_mhz: float | None = None
    cpu_busy_percent: float | None = None
    throttle: frozenset[str] | None = None


class Source(Protocol):
    """Something that can be read.

    Attributes:
        name: What the record calls it.
        interval_s: Seconds between readings.
    """

    name: str
    interval_s: float

    def begin(self) -> None:
        """A new series begins, in the thread that will read it; forgets what came before."""

    def read(self) -> Reading:
        """One reading; raises TelemetryLost."""


def pci_address(domain: int, bus: int, device: int) -> str:
    """`0000:1b:00.0`: what NVML and AMD SMI call a card."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def pci_of(device: Device) -> str:
    """PCI address of a GPU as torch tells it; raises TelemetryLost when this torch does not."""
    import torch

    found: Any = torch.cuda.get_device_properties(device.index)
    try:
        return pci_address(found.pci_domain_id, found.pci_bus_id, found.pci_device_id)
    except AttributeError as error:
        raise TelemetryLost("this torch does not tell the GPU's PCI address") from error
