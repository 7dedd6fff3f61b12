"""Does a server keep up with an open loop, or is a queue growing that the load was too short for?

While a queue grows, every request of a short load may still meet its limits: what is offered for a
second is served in ten. Two signs tell. Completions come more slowly than starts; and requests that
start later wait longer. In a fluid model they are one: at `m` completions a second of `l` offered,
the wait grows by `l / m - 1` seconds a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchx.core import metric
from benchx.serving.request import RequestOutcome, RequestResult
from benchx.stats.summary import median

LEAST_SHARE = 0.95
"""Of the offered rate that a server which keeps up achieves."""

MOST_GROWTH = 1 / LEAST_SHARE - 1
"""Seconds by which the wait may grow in a second: the same limit."""

FEWEST = 10
"""Starts and completions from which their rates can be told."""

_EDGE = 0.1
"""Of the completions on either side, where a load fills and drains."""

_NS = 1e9


@dataclass(frozen=True, kw_only=True)
class KeepingUp:
    """How a server followed an open loop.

    Attributes:
        offered_rate: Starts that were due per second; None for a single one.
        achieved_share: Completions per second / starts per second; None for fewer than ten.
        wait_growth: Seconds by which the wait for a first token grew in a second; None for fewer.
    """

    offered_rate: float | None
    achieved_share: float | None
    wait_growth: float | None

    @property
    def problem(self) -> str | None:
        """Why the server does not keep up; None when it does, or when that can't be told."""
        if self.achieved_share is not None and self.achieved_share < LEAST_SHARE:
            return f"only {self.achieved_share:.0%} of the offered rate is achieved"
        if self.wait_growth is not None and self.wait_growth > MOST_GROWTH:
            return f"the wait grows by {self.wait_growth:.2g} s in a second"
        return None

    @property
    def is_known(self) -> bool:
        """Whether there were enough requests to tell."""
        return self.achieved_share is not None and self.wait_growth is not None

    def values(self) -> dict[str, float]:
        """Metric id -> value; what is not known is absent."""
        found = {
            metric.OFFERED_RATE.id: self.offered_rate,
            metric.ACHIEVED_SHARE.id: self.achieved_share,
            metric.WAIT_GROWTH.id: self.wait_growth,
        }
        return {name: value for name, value in found.items() if value is not None}


def keeping_up(
    results: Sequence[RequestResult], starts_s: Sequence[float], sent: Mapping[int, int]
) -> KeepingUp:
    """Compare what was offered with what was completed.

    Args:
        results: Every request of the load.
        starts_s: Starts that were due, sent or not, in s after the start of the load, in order.
        sent: Index of the last request of each chain -> index of its first one.
    """
    ok = {r.index: r for r in results if r.outcome is RequestOutcome.OK}
    ends_s = sorted(ok[last].end_ns / _NS for last in sent if last in ok)
    first = [ok[index] for index in sent.values() if index in ok]
    offered, achieved = _rate(starts_s), _rate(ends_s)
    span_s = starts_s[-1] - starts_s[0] if starts_s else 0.0
    return KeepingUp(
        offered_rate=(len(starts_s) - 1) / span_s if span_s > 0 else None,
        achieved_share=None if offered is None or achieved is None else achieved / offered,
        wait_growth=_growth(first),
    )


def _rate(times_s: Sequence[float]) -> float | None:
    """Events per second without the edges; None for too few, infinite for a burst."""
    if len(times_s) < FEWEST:
        return None
    low = int(_EDGE * len(times_s))
    inner = times_s[low : len(times_s) - low]
    span_s = inner[-1] - inner[0]
    return (len(inner) - 1) / span_s if span_s > 0 else float("inf")


def _growth(first: Sequence[RequestResult]) -> float | None:
    """Growth of the wait, s/s, by the medians of the first and the last third."""
    if len(first) < FEWEST:
        return None
    ordered = sorted(first, key=lambda result: result.intended_ns)
    third = len(ordered) // 3
    early, late = ordered[:third], ordered[-third:]
    apart_s = float(np.mean(_starts_s(late)) - np.mean(_starts_s(early)))
    grown_s = median(_waits_s(late)) - median(_waits_s(early))
    if apart_s <= 0:
        return None
    return grown_s / apart_s


def _starts_s(results: Sequence[RequestResult]) -> list[float]:
    return [result.intended_ns / _NS for result in results]


def _waits_s(results: Sequence[RequestResult]) -> list[float]:
    """To the first token, or to the end of an answer that was not streamed."""
    return [
        ((r.end_ns if r.first_token_ns is None else r.first_token_ns) - r.intended_ns) / _NS
        for r in results
    ]
