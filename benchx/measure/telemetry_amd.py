"""Telemetry of AMD GPUs."""

from __future__ import annotations

from typing import Any

from benchx.core.device import Device
from benchx.measure.telemetry_reading import Reading, TelemetryLost, pci_of


class AmdSmiSource:
    """AMD's management library, matched to torch's device by PCI address."""

    name = "amdsmi"
    interval_s = 0.05

    def __init__(self, device: Device) -> None:
        try:
            import amdsmi
        except (ImportError, OSError, KeyError, AttributeError) as error:
            # Its import loads the library itself, and looks for functions that an older one lacks.
            raise TelemetryLost(f"amdsmi can't be imported: {_one_line(error)}") from error
        self._smi = amdsmi
        address = pci_of(device)
        try:
            amdsmi.amdsmi_init()
            handles = amdsmi.amdsmi_get_processor_handles()
            found = [h for h in handles if _same_pci(amdsmi.amdsmi_get_gpu_device_bdf(h), address)]
        except amdsmi.AmdSmiException as error:
            raise TelemetryLost(f"amdsmi: {_one_line(error)}") from error
        if not found:
            raise TelemetryLost(f"amdsmi lists no GPU at {address}")
        self._handle = found[0]

    def begin(self) -> None:
        """See `Source.begin`; each reading stands for itself."""

    def read(self) -> Reading:
        """See `Source.read`."""
        try:
            metrics = self._smi.amdsmi_get_gpu_metrics_info(self._handle)
        except self._smi.AmdSmiException as error:
            raise TelemetryLost(f"amdsmi: {_one_line(error)}") from error
        return amd_reading(metrics)


def amd_reading(metrics: dict[str, Any]) -> Reading:
    """A reading from the dict of `amdsmi_get_gpu_metrics_info`; "N/A" becomes None.

    Throttle residencies there are counters since boot, not a present state, so they are left
    out and `throttle` is None (not told).
    """
    return Reading(
        sm_clock_mhz=_first_number(metrics.get("current_gfxclks"), metrics.get("current_gfxclk")),
        power_w=_first_number(
            metrics.get("current_socket_power"), metrics.get("average_socket_power")
        ),
        temperature_c=_first_number(
            metrics.get("temperature_hotspot"), metrics.get("temperature_edge")
        ),
    )


def _first_number(*candidates: object) -> float | None:
    """The first candidate that is a number, or the mean of the numbers in a list."""
    for candidate in candidates:
        entries = candidate if isinstance(candidate, list) else [candidate]
        numbers = [n for n in entries if isinstance(n, int | float) and not isinstance(n, bool)]
        if numbers:
            return sum(numbers) / len(numbers)
    return None


def _one_line(error: Exception) -> str:
    """Its messages are spread over lines and tabs."""
    return " ".join(str(error).split())


def _same_pci(bdf: str, address: str) -> bool:
    return bdf.lower().rpartition(".")[0] == address.rpartition(".")[0]
