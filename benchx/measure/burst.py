"""Timing in short bursts from rest, so that each begins with the same clocks and power budget.

A card under a matrix product reaches its power limit within a second and then lowers its clocks:
the same product took 1.38 ms in a first burst and 1.60 ms after a second of them (seen on an
H200). Whoever is measured later looks slower, unless the card rests before each measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.gpu import synchronize
from benchx.measure.timers import Timer
from benchx.measure.warmup import warm_up
from benchx.stats.summary import median

REST_S = 0.5
BURST_S = 0.1
"""What is timed after a rest; the usual length of triton's do_bench too."""

_WARM_UP_S = 0.2
_MIN_SAMPLES = 10


def rested_and_warm_s(
    call: PreparedCall, device: Device, *, sleep: Callable[[float], None] = time.sleep
) -> float:
    """Idle for half a second, then call until steady; returns the seconds of a steady call."""
    synchronize(device)
    sleep(REST_S)
    return warm_up(call, device, max_time_s=_WARM_UP_S).steady_call_s


def burst_ms(
    call: PreparedCall,
    device: Device,
    timer: Timer,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Median milliseconds of a tenth of a second of samples (at least 10), warm, after a rest."""
    steady_s = rested_and_warm_s(call, device, sleep=sleep)
    count = max(_MIN_SAMPLES, round(BURST_S / steady_s))
    return median(timer.sample([call], count).device_time_ms)
