"""The control kernel through a launch: if its time moves, the machine did, not the backends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from benchx.core.device import Device
from benchx.measure.control import ControlKernel
from benchx.runner.faults import Guard

INTERVAL_S = 5.0
"""Least time between two looks: a look takes tenths of a second on a CPU, small groups no more."""


class Control(Protocol):
    """A fixed piece of work (`measure.control.ControlKernel`)."""

    def time_ms(self) -> float:
        """Milliseconds that it takes now."""


@dataclass
class DriftWatch:
    """Times the control kernel now and then; where it can't run, nothing is claimed.

    Control measurements are made under equal conditions where possible: before and after timing,
    while the points hold their memory. After giving it back, an H200 took 0.172 ms at the end of 11
    of 17 launches, and 0.157 before; the cause is not known, and would be taken for drift.

    Attributes:
        device: Where the points run.
        report: Called with each time.
        make: Builds the control kernel, on first use.
    """

    device: Device
    report: Callable[[float], None]
    make: Callable[[Device], Control] = ControlKernel
    clock_s: Callable[[], float] = time.monotonic
    _times_ms: list[float] = field(default_factory=list)
    _kernel: Control | None = None
    _last_s: float | None = None
    _closed: bool = False

    def look(self, *, closing: bool = False) -> None:
        """Time it, unless the last look was less than 5 s ago.

        Args:
            closing: These are the last points of the launch. Then it is timed however soon, if it
                ever was: a launch shorter than the interval has a drift too.
        """
        is_due = self._last_s is None or self.clock_s() - self._last_s >= INTERVAL_S
        if is_due or (closing and self._times_ms):
            self._time()
            self._closed = closing

    def last_look(self) -> None:
        """Time it at the end of a launch whose last points could not be timed."""
        if self._times_ms and not self._closed:
            self._time()

    def _time(self) -> None:
        with Guard() as guard:
            self._kernel = self._kernel or self.make(self.device)
            time_ms = self._kernel.time_ms()
        self._last_s = self.clock_s()
        if guard.fault is None:
            self._times_ms.append(time_ms)
            self.report(time_ms)

    def columns(self) -> dict[str, float]:
        """`control_first_ms` and `control_last_ms` of this worker until now, and `control_drift`.

        The drift at a look is its time over the worker's first, minus 1: here that of the last
        look, absent before the second. A report's header gives the largest of all looks.
        """
        if len(self._times_ms) < 2:
            return {}
        first, last = self._times_ms[0], self._times_ms[-1]
        drift = last / first - 1
        return {"control_first_ms": first, "control_last_ms": last, "control_drift": drift}
