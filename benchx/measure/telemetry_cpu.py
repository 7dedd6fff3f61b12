"""Telemetry of CPUs."""

from __future__ import annotations

from benchx.core.device import Device
from benchx.measure.telemetry_reading import Reading, TelemetryLost


class PsutilSource:
    """The CPU's clock and how busy the whole machine is (other processes disturb CPU timing)."""

    name = "psutil"
    interval_s = 0.25  # reading the clocks of many cores takes milliseconds

    def __init__(self, device: Device) -> None:
        import psutil

        self._psutil = psutil
        psutil.cpu_percent(interval=None)  # the first call only sets the mark

    def read(self) -> Reading:
        """See `Source.read`."""
        try:
            clock = self._psutil.cpu_freq()
            busy = self._psutil.cpu_percent(interval=None)
        except (OSError, NotImplementedError, RuntimeError, self._psutil.Error) as error:
            raise TelemetryLost(f"psutil: {error}") from error
        return Reading(
            cpu_clock_mhz=clock.current if clock is not None and clock.current > 0 else None,
            cpu_busy_percent=busy,
        )
