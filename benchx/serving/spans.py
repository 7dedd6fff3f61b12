"""Stretches of a load's time: all of it, and that in which it was full."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchx.serving.request import RequestOutcome, RequestResult

_NS = 1e9
_LIFETIMES = 2.0
"""Median times of a request that a steady state lasts. Requests of equal length that start together
also end together: a shorter stretch holds the prefills of one wave or its decode steps, not both in
their true shares."""

_WALL_SHARE = 0.2
_FEWEST_ENDS = 3


def wall_s(results: Sequence[RequestResult]) -> float:
    """From the first intended send to the last end."""
    began_ns = min(result.intended_ns for result in results)
    return max((max(result.end_ns for result in results) - began_ns) / _NS, 1e-9)


def steady_window_ns(results: Sequence[RequestResult]) -> tuple[int, int] | None:
    """From the first end of an ok request to the last send (ns, the stamps' clock).

    What holds of it holds for a longer load, too.

    Args:
        results: Of one load, failed ones included.

    Returns:
        None where that is less than a fifth of the load's time, less than two lifetimes of a
        request, or holds fewer than three ends: too little to speak of a steady state.
    """
    sent_ns = [result.sent_ns for result in results if result.sent_ns is not None]
    ok = [result for result in results if result.outcome is RequestOutcome.OK]
    lifetimes_ns = [result.end_ns - result.sent_ns for result in ok if result.sent_ns is not None]
    if not lifetimes_ns:
        return None
    first_ns, last_ns = min(result.end_ns for result in ok), max(sent_ns)
    least_ns = max(_WALL_SHARE * wall_s(results) * _NS, _LIFETIMES * median(lifetimes_ns))
    ended = sum(first_ns < result.end_ns <= last_ns for result in ok)
    if last_ns - first_ns < least_ns or ended < _FEWEST_ENDS:
        return None
    return first_ns, last_ns
