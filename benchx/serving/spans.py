"""Stretches of a load's time: all of it, and that in which it was steady."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchx.serving.request import RequestOutcome, RequestResult

_NS = 1e9
_LIFETIMES = 2.0
"""Median times of a request that a steady state lasts. Requests of equal length that start together
also end together: a shorter stretch holds the prefills of one wave or its decode steps, not both in
their true shares."""

_FULL_SHARE = 0.95
"""Of the plateau: a load with fewer requests in flight than this is not the load that was asked."""

_FREE_LIFETIMES = 6.0
_SIGMAS, _PEAK_SIGMAS = 3.0, 4.0
"""Where arrivals are free, numbers in flight scatter like a Poisson variable, by their root: for so
long a load must last to tell scatter from a trend, and by so much may it differ."""

_WALL_SHARE = 0.2
_FEWEST_ENDS = 3
_STEPS_PER_LIFETIME, _MOST_STEPS = 20, 20_000

_Array = npt.NDArray[np.float64]


class _Curve(NamedTuple):
    """Requests in flight, averaged over one lifetime before or after a time, whichever is more.

    A lane that takes a moment to send its next request makes no dip, and an edge stays an edge.
    """

    at_ns: _Array
    in_flight: _Array


def wall_s(results: Sequence[RequestResult]) -> float:
    """From the first intended send to the last end."""
    began_ns = min(result.intended_ns for result in results)
    return max((max(result.end_ns for result in results) - began_ns) / _NS, 1e-9)


def steady_window_ns(results: Sequence[RequestResult]) -> tuple[int, int] | None:
    """The longest time in which the load was steady (ns, the stamps' clock).

    It lies between the first end of an ok request and the last send, and in it at least 95 % of the
    plateau are in flight, so that neither a ramp nor lanes that have run out of work are part of
    it. The plateau is the highest number in flight. Where that is never kept for two lifetimes of a
    request, arrivals may be free of ends (an open loop, times to think): then it is the median, may
    scatter like a Poisson variable, and must show no trend over six lifetimes or more.

    What holds of it holds for a longer load, too.

    Args:
        results: Of one load, failed ones included.

    Returns:
        None where that is less than a fifth of the load's time, less than two lifetimes of a
        request, or holds fewer than three ends: too little to speak of a steady state.
    """
    ok = [result for result in results if result.outcome is RequestOutcome.OK]
    lifetimes_ns = [result.end_ns - result.sent_ns for result in ok if result.sent_ns is not None]
    lifetime_ns = median(lifetimes_ns) if lifetimes_ns else 0
    if lifetime_ns <= 0:
        return None
    sends_ns = np.sort([one.sent_ns for one in results if one.sent_ns is not None])
    ends_ns = np.sort([one.end_ns for one in results if one.sent_ns is not None])
    begin_ns, end_ns = min(result.end_ns for result in ok), int(sends_ns[-1])
    if end_ns - begin_ns < _LIFETIMES * lifetime_ns:
        return None
    curve, peak = _curve(sends_ns, ends_ns, (begin_ns, end_ns), lifetime_ns)
    found = _longest(curve, _FULL_SHARE * peak)
    if found is None or found[1] - found[0] < _LIFETIMES * lifetime_ns:
        found = _free_window(curve, peak, lifetime_ns)
    if found is None or found[1] - found[0] < _WALL_SHARE * wall_s(results) * _NS:
        return None
    ended = sum(found[0] < result.end_ns <= found[1] for result in ok)
    return found if ended >= _FEWEST_ENDS else None


def _curve(
    sends_ns: _Array, ends_ns: _Array, span_ns: tuple[int, int], lifetime_ns: float
) -> tuple[_Curve, int]:
    """Between two times; and the highest number in flight at any time."""
    origin_ns = int(sends_ns[0])
    events = np.concatenate((sends_ns, ends_ns)) - origin_ns
    steps = np.concatenate((np.ones(len(sends_ns)), -np.ones(len(ends_ns))))
    order = np.lexsort((steps, events))  # at equal times an end comes first
    at, level = events[order].astype(np.float64), np.cumsum(steps[order])
    held = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(at))))
    first, last = span_ns[0] - origin_ns, span_ns[1] - origin_ns
    count = math.ceil(_STEPS_PER_LIFETIME * (last - first) / lifetime_ns) + 1
    times = np.linspace(first, last, min(count, _MOST_STEPS))
    until = np.interp(times, at, held)
    before = until - np.interp(times - lifetime_ns, at, held)
    after = np.interp(times + lifetime_ns, at, held) - until
    return _Curve(times + origin_ns, np.maximum(before, after) / lifetime_ns), int(level.max())


def _longest(curve: _Curve, least: float) -> tuple[int, int] | None:
    """The longest stretch with at least so many in flight; None if there never are."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], curve.in_flight >= least, [0]))))
    if not len(edges):
        return None
    begins, ends = edges[::2], edges[1::2] - 1
    longest = int(np.argmax(ends - begins))
    return int(curve.at_ns[begins[longest]]), int(curve.at_ns[ends[longest]])


def _free_window(curve: _Curve, peak: int, lifetime_ns: float) -> tuple[int, int] | None:
    """The steady time of a load whose arrivals don't wait for ends; None if it had none."""
    usual = float(np.median(curve.in_flight))
    if peak > usual + _PEAK_SIGMAS * math.sqrt(usual) + 1:
        return None
    tolerance = max((1 - _FULL_SHARE) * usual, _SIGMAS * math.sqrt(usual))
    found = _longest(curve, usual - tolerance)
    if found is None or found[1] - found[0] < _FREE_LIFETIMES * lifetime_ns:
        return None
    inside = curve.in_flight[(curve.at_ns >= found[0]) & (curve.at_ns <= found[1])]
    thirds = [float(np.mean(part)) for part in np.array_split(inside, 3)]
    # The mean over a time T of a Poisson variable with memory L has the variance 2 x mean x L / T.
    third_ns = (found[1] - found[0]) / 3
    sigma = math.sqrt(2 * usual * lifetime_ns / third_ns)
    return found if abs(thirds[0] - thirds[2]) <= _SIGMAS * math.sqrt(2) * sigma else None
