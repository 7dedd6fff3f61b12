"""Telemetry of NVIDIA GPUs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchx.core.device import Device
from benchx.measure.telemetry_reading import Reading, TelemetryLost, pci_of


class NvmlSource:
    """NVIDIA's management library, matched to torch's device by UUID, else by PCI address."""

    name = "nvml"
    interval_s = 0.05

    def __init__(self, device: Device) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise TelemetryLost(f"nvidia-ml-py can't be imported: {error}") from error
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = self._find(device)
        except pynvml.NVMLError as error:
            raise TelemetryLost(f"NVML: {error}") from error

    def begin(self) -> None:
        """See `Source.begin`; each reading stands for itself."""

    def read(self) -> Reading:
        """See `Source.read`; a quantity that this card does not tell is None."""
        nvml, handle = self._nvml, self._handle
        power_mw = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        bits = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return Reading(
            sm_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=self._ask(
                nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            throttle=None if bits is None else nvml_reasons(bits),
        )

    def settings(self) -> dict[str, float | bool | str | None]:
        """What of the card decides its speed beside its kind; None where it does not tell.

        Keys: `id` (the same for the same card, and no way back to its serial number or UUID),
        `power_limit_w` in force and `power_limit_default_w`, `sm_clock_application_mhz` and
        `memory_clock_application_mhz` (clocks that were set; locked ones NVML does not tell),
        `sm_clock_max_mhz`, `ecc` and `mig`.
        """
        nvml = self._nvml
        limits_mw = (
            self._told("nvmlDeviceGetEnforcedPowerLimit"),
            self._told("nvmlDeviceGetPowerManagementDefaultLimit"),
        )
        limit_w, default_w = (None if limit is None else limit / 1000 for limit in limits_mw)
        sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
        modes = (
            self._told("nvmlDeviceGetEccMode"),
            self._told("nvmlDeviceGetMigMode"),
        )
        ecc, mig = (None if mode is None else bool(mode[0]) for mode in modes)
        return {
            "id": card_id(self._told("nvmlDeviceGetUUID")),
            "power_limit_w": limit_w,
            "power_limit_default_w": default_w,
            "sm_clock_application_mhz": self._told("nvmlDeviceGetApplicationsClock", sm),
            "memory_clock_application_mhz": self._told("nvmlDeviceGetApplicationsClock", memory),
            "sm_clock_max_mhz": self._told("nvmlDeviceGetMaxClockInfo", sm),
            "ecc": ecc,
            "mig": mig,
        }

    def _told(self, question: str, *arguments: object) -> Any:  # noqa: ANN401 - NVML's own
        """An answer about the card, or None.

        Some questions need rights that nobody has; versions of the library and of the driver drop
        others.
        """
        ask = getattr(self._nvml, question, None)
        try:
            return None if ask is None else ask(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None

    def _ask(self, question: Callable[..., int], *arguments: object) -> int | None:
        try:
            return question(*arguments)
        except self._nvml.NVMLError_NotSupported:
            return None
        except self._nvml.NVMLError as error:
            raise TelemetryLost(f"NVML: {error}") from error

    def _find(self, device: Device) -> object:
        import torch

        uuid = str(getattr(torch.cuda.get_device_properties(device.index), "uuid", ""))
        if uuid:
            text = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            unknown = (self._nvml.NVMLError_NotFound, self._nvml.NVMLError_InvalidArgument)
            with suppress(*unknown):
                return self._nvml.nvmlDeviceGetHandleByUUID(text.encode())
        return self._nvml.nvmlDeviceGetHandleByPciBusId(pci_of(device).encode())


def card_id(uuid: str | bytes | None) -> str | None:
    """Twelve hexadecimal digits that stand for a card's UUID (random itself), or None."""
    if not uuid:
        return None
    known = uuid if isinstance(uuid, bytes) else uuid.encode()
    return hashlib.sha256(b"benchx card\0" + known).hexdigest()[:12]


_NVML_REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""NVML's nvmlClocksThrottleReasons bits; 0x1 (idle) is left out: it limits nothing."""


def nvml_reasons(bits: int) -> frozenset[str]:
    """Names of the bits set in NVML's throttle-reasons mask; unknown bits by their number."""
    names = {name for bit, name in _NVML_REASONS.items() if bits & bit}
    known = 0x1 | sum(_NVML_REASONS)
    unknown = bits & ~known
    return frozenset(names | ({f"unknown_{unknown:#x}"} if unknown else set()))
