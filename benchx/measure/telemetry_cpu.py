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
        self._is_first = True

    def begin(self) -> None:
        """See `Source.begin`; psutil keeps the mark of each thread by itself."""
        self._psutil.cpu_percent(interval=None)  # only sets the mark
        self._is_first = True

    def read(self) -> Reading:
        """See `Source.read`; how busy is told from the second reading on.

        It is counted from the reading before, in ticks of 10 ms: the first one, right behind the
        mark, would read 0 or 100 whatever the machine does.
        """
        try:
            clock = self._psutil.cpu_freq()
            busy = None if self._is_first else self._psutil.cpu_percent(interval=None)
            self._is_first = False
        except (OSError, NotImplementedError, RuntimeError, self._psutil.Error) as error:
            raise TelemetryLost(f"psutil: {error}") from error
        return Reading(
            cpu_clock_mhz=clock.current if clock is not None and clock.current > 0 else None,
            cpu_busy_percent=busy,
        )
