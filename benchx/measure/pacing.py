"""Comparing timers at full clocks: a pause before each call keeps a card far below its power limit.

On an H200 a bf16 8192^3 product of random numbers took 1.52 to 1.60 ms back to back, after 50 ms
already, and 1.38 ms under a timer that leaves the card idle between calls: the power limit lowers
the clocks. How long a timer's own pauses are must not decide what it reads: all get the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from benchx.core.call import PreparedCall
from benchx.measure.timers import Timer
from benchx.stats.summary import median

PAUSE_S = 0.01
"""Long against the calls compared (1.4 and 2 ms), so that the card idles most of the time."""

_WARM_UP_SAMPLES, _SAMPLES = 10, 30


def pause() -> None:
    """Leave the device idle for 10 ms; for outside of what is timed.

    The host stays busy: one that slept submits its next call so slowly that the device waits.
    """
    end_s = time.perf_counter() + PAUSE_S
    while time.perf_counter() < end_s:
        pass


def paced(call: PreparedCall, *, pause: Callable[[], None] = pause) -> PreparedCall:
    """The call with a pause before it, in the place of its reset (which it must not have)."""
    assert call.reset is None
    return replace(call, reset=pause)


def paced_ms(call: PreparedCall, timer: Timer, *, pause: Callable[[], None] = pause) -> float:
    """Median milliseconds of 30 paced samples, after 10 that warm up."""
    calls = [paced(call, pause=pause)]
    timer.sample(calls, _WARM_UP_SAMPLES)
    return median(timer.sample(calls, _SAMPLES).device_time_ms)
