"""Telemetry of AMD GPUs."""

from __future__ import annotations

from collections.abc import Mapping
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
        self._tells_violations = hasattr(amdsmi, "amdsmi_get_violation_status")

    def begin(self) -> None:
        """See `Source.begin`; each reading stands for itself."""

    def read(self) -> Reading:
        """See `Source.read`."""
        try:
            metrics = self._smi.amdsmi_get_gpu_metrics_info(self._handle)
        except self._smi.AmdSmiException as error:
            raise TelemetryLost(f"amdsmi: {_one_line(error)}") from error
        return amd_reading(metrics, self._violations())

    def _violations(self) -> Mapping[str, Any] | None:
        """None from the first refusal on: cards before MI300, and older libraries, have none."""
        if not self._tells_violations:
            return None
        try:
            return dict(self._smi.amdsmi_get_violation_status(self._handle))
        except self._smi.AmdSmiException:
            self._tells_violations = False
            return None


_VIOLATIONS = {
    "active_prochot_thrm": "hw_slowdown",
    "active_socket_thrm": "hw_thermal_slowdown",
    "active_vr_thrm": "hw_thermal_slowdown",
    "active_hbm_thrm": "hw_thermal_slowdown",
    "active_ppt_pwr": "sw_power_cap",
}
"""States of `amdsmi_get_violation_status` (MI300 and later) in NVML's words."""

_STATUS_BITS = (
    (range(8), "sw_power_cap"),
    (range(16, 24), "current_limit"),
    (range(32, 46), "sw_thermal_slowdown"),
    (range(46, 48), "hw_slowdown"),
)
"""Groups of `indep_throttle_status` (amdgpu's gpu_metrics since v1.3; MI100, MI200, Radeon): power,
current, temperature and PROCHOT. Temperature is the firmware's own control of clocks, which PROCHOT
overrides."""


def amd_reading(metrics: Mapping[str, Any], violations: Mapping[str, Any] | None = None) -> Reading:
    """A reading from the dicts of `amdsmi_get_gpu_metrics_info` and `amdsmi_get_violation_status`.

    "N/A" becomes None. Throttle residencies are counters since boot, not a present state, so they
    are left out; `throttle` is None where neither dict tells the state.
    """
    return Reading(
        sm_clock_mhz=_first_number(metrics.get("current_gfxclks"), metrics.get("current_gfxclk")),
        power_w=_first_number(
            metrics.get("current_socket_power"), metrics.get("average_socket_power")
        ),
        temperature_c=_first_number(
            metrics.get("temperature_hotspot"), metrics.get("temperature_edge")
        ),
        throttle=_throttle(metrics, violations or {}),
    )


def _throttle(metrics: Mapping[str, Any], violations: Mapping[str, Any]) -> frozenset[str] | None:
    states = [(violations.get(state), word) for state, word in _VIOLATIONS.items()]
    told = [(state, word) for state, word in states if isinstance(state, int)]
    if told:
        return frozenset(word for active, word in told if active)
    bits = metrics.get("indep_throttle_status")
    if not isinstance(bits, int):
        return None
    groups = ((sum(1 << bit for bit in group), word) for group, word in _STATUS_BITS)
    return frozenset(word for mask, word in groups if bits & mask)


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
