"""Clocks, power, temperature and throttle reasons, sampled by a thread while points are timed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchx.core.device import Device
from benchx.measure.telemetry_amd import AmdSmiSource
from benchx.measure.telemetry_cpu import PsutilSource
from benchx.measure.telemetry_nvidia import NvmlSource
from benchx.measure.telemetry_reading import Reading, Source, TelemetryLost
from benchx.stats.summary import median

HW_THROTTLE = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})
"""The card protected itself: figures taken meanwhile are not the card's speed."""

_NOTED = frozenset({"sw_power_cap", "sw_thermal_slowdown"})
"""Limits that are part of how a card runs under load: a note, not a mark."""

FEWEST_READINGS = 10
"""So many make a summary of one backend's own; a share of fewer would jump by more than 10 %."""

_CUT_SHORT = "reading stopped with an error, which is in the log"

_SOURCES: dict[str, Callable[[Device], Source]] = {
    "nvidia": NvmlSource,
    "amd": AmdSmiSource,
    "cpu": PsutilSource,
}


class Telemetry:
    """Samples one device between `start` and `stop`; never fails the measurement.

    Args:
        device: Which device.
        source: Where readings come from; by default the device's own management library.
    """

    def __init__(self, device: Device, *, source: Source | None = None) -> None:
        self._absent: str | None = None
        self._source = source
        if source is None:
            try:
                self._source = _SOURCES[device.vendor](device)
            except TelemetryLost as lost:
                self._absent = str(lost)
        self._readings: list[Reading] = []
        self._owners: list[str | None] = []  # of the readings, one each
        self._owner: str | None = None
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin a new series of readings (a running one is stopped and dropped)."""
        self._join()
        self._readings, self._owners, self._owner = [], [], None
        self._done.clear()
        if self._source is not None:
            self._thread = threading.Thread(target=self._sample, name="telemetry", daemon=True)
            self._thread.start()

    def mark(self, owner: str) -> None:
        """What runs from now on is `owner`'s; see `of`."""
        self._owner = owner

    def of(self, owner: str) -> dict[str, Any]:
        """`stop` again, of the readings taken while `owner` ran, after the series has ended.

        Where they are fewer than `FEWEST_READINGS`, of all of them. `readings_of` says which:
        "own" or "all".
        """
        pairs = zip(self._owners, self._readings, strict=True)
        own = [reading for whose, reading in pairs if whose == owner]
        enough = len(own) >= FEWEST_READINGS
        readings = own if enough else self._readings
        return self._summary(readings) | {"readings_of": "own" if enough else "all"}

    def stop(self) -> dict[str, Any]:
        """End the series and summarise it, as plain data.

        Keys: `source` ("nvml", "amdsmi", "psutil", "none"), `readings` (their number),
        `sm_clock_mhz_p50`, `sm_clock_mhz_min`, `power_w_mean`, `temperature_c_max`,
        `cpu_clock_mhz_p50`, `cpu_busy_percent_mean` (the whole machine), `throttle_reasons`
        (sorted, each seen at least once), `hw_throttled`, `hw_throttled_share` (of the readings,
        0 to 1), and `absent`: why there is no or only part of a series, else None. What was not
        read is None, never 0 or False.
        """
        self._join()
        return self._summary(self._readings)

    def _summary(self, readings: Sequence[Reading]) -> dict[str, Any]:
        source = self._source.name if self._source is not None else "none"
        return summarise(readings, source=source, absent=self._absent)

    def _join(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _sample(self) -> None:
        assert self._source is not None
        self._absent = _CUT_SHORT  # what else may go wrong in a library ends the thread
        try:
            self._source.begin()
            self._take(self._source)
            while not self._done.wait(self._source.interval_s):
                self._take(self._source)
            self._absent = None
        except TelemetryLost as lost:
            self._absent = str(lost)

    def _take(self, source: Source) -> None:
        owner = self._owner  # as it was when the reading began
        self._readings.append(source.read())
        self._owners.append(owner)


def card_settings(device: Device) -> dict[str, Any]:
    """Limits, clocks and modes that a card is set to (`NvmlSource.settings`); {} if it can't tell.

    Those of NVIDIA cards only: AMD SMI and processors are not asked.
    """
    if device.vendor != "nvidia":
        return {}
    try:
        return dict(NvmlSource(device).settings())
    except TelemetryLost:
        return {}


def telemetry_notes(telemetry: Mapping[str, Any]) -> tuple[str, ...]:
    """Notes for `Timing.notes` that follow from what `Telemetry.stop` returned."""
    reasons = telemetry.get("throttle_reasons") or ()
    return tuple(sorted(_NOTED & set(reasons)))


def summarise(readings: Sequence[Reading], *, source: str, absent: str | None) -> dict[str, Any]:
    """The dict that `Telemetry.stop` documents."""
    clocks = _known(reading.sm_clock_mhz for reading in readings)
    power = _known(reading.power_w for reading in readings)
    temperatures = _known(reading.temperature_c for reading in readings)
    cpu_clocks = _known(reading.cpu_clock_mhz for reading in readings)
    busy = _known(reading.cpu_busy_percent for reading in readings)
    told = [reading.throttle for reading in readings if reading.throttle is not None]
    reasons = sorted(frozenset().union(*told))
    return {
        "source": source,
        "readings": len(readings),
        "sm_clock_mhz_p50": median(clocks) if clocks else None,
        "sm_clock_mhz_min": min(clocks) if clocks else None,
        "power_w_mean": sum(power) / len(power) if power else None,
        "temperature_c_max": max(temperatures) if temperatures else None,
        "cpu_clock_mhz_p50": median(cpu_clocks) if cpu_clocks else None,
        "cpu_busy_percent_mean": sum(busy) / len(busy) if busy else None,
        "throttle_reasons": reasons if told else None,
        "hw_throttled": bool(HW_THROTTLE & set(reasons)) if told else None,
        "hw_throttled_share": _share(told),
        "absent": absent,
    }


def _share(told: Sequence[frozenset[str]]) -> float | None:
    return sum(bool(HW_THROTTLE & reasons) for reasons in told) / len(told) if told else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
