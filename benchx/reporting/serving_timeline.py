"""One load over time, from its stored requests and the server's series: what a time line shows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchx.core.outcome import Outcome
from benchx.serving.request import RequestOutcome, RequestResult
from benchx.serving.spans import steady_window_ns
from benchx.store import Run
from benchx.store.requests import has_load, read_load

Times = tuple[float, ...]

_NS = 1e9
_BINS = 100
_FEWEST_BINS = 10
_TOKENS_PER_BIN = 10.0
_SHORTEST = 1e-3
"""Share of the load's time below which a state is too short to be seen."""

_STEPS = (1.0, 2.0, 5.0)
_FEWEST_READINGS = 5
"""Of the KV cache: a line through fewer looks like a course that nobody has seen."""


@dataclass(frozen=True, kw_only=True)
class TimelineSource:
    """Where the time line of a point is; nothing is read until it is drawn.

    Attributes:
        launch: The first launch in which the point was ok.
        folder: The run folder.
        name: Of the stored load.
        series: The server's metrics by name, `at_ns` among them; empty where it told none.
    """

    point_id: str
    launch: int
    folder: Path
    name: str
    series: Mapping[str, Sequence[float | None]]

    @property
    def has_requests(self) -> bool:
        """Whether the requests are (still) there."""
        return has_load(self.folder, self.name)

    def read(self) -> Timeline:
        """The time line; raises StoreError when the file can't be read."""
        return timeline([_result(row) for row in read_load(self.folder, self.name)], self.series)


@dataclass(frozen=True)
class Curve:
    """A quantity over time; times in seconds after the first request was sent."""

    times_s: Times
    values: Times


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A load over time.

    Attributes:
        end_s: When the last answer was complete.
        in_flight: Requests that were sent and not ended; each value holds until the next time.
        failed_s: When requests ended that were not ok.
        bin_s: Width of the bins of `tokens`.
        tokens: Output tokens per second of each bin, at its start; empty if nothing was streamed.
        steady_s: When the load was full; None if that was too short.
        waiting: Requests that waited at the server; empty where it does not tell.
        kv_usage: Share of the server's KV cache in use; likewise.
    """

    end_s: float
    in_flight: Curve
    failed_s: Times
    bin_s: float
    tokens: Curve
    steady_s: tuple[float, float] | None
    waiting: Curve
    kv_usage: Curve

    @property
    def shows_kv_usage(self) -> bool:
        """Whether the cache was read often enough for a course of its use."""
        return len(self.kv_usage.times_s) >= _FEWEST_READINGS


def sources(run: Run) -> tuple[TimelineSource, ...]:
    """One per serving point that was ok, in the order of the records."""
    found: dict[str, TimelineSource] = {}
    for record in sorted(run.records, key=lambda record: record.launch):
        name = record.provenance.get("requests")
        if record.outcome is Outcome.OK and name and record.point_id not in found:
            found[record.point_id] = TimelineSource(
                point_id=record.point_id,
                launch=record.launch,
                folder=run.path,
                name=str(name),
                series=record.telemetry.get("server_series") or {},
            )
    return tuple(found.values())


def _result(row: Mapping[str, Any]) -> RequestResult:
    """A stored row; mappings are JSON text in a table and plain in lines."""
    plain = {name: json.loads(value) if _is_json(name, value) else value
             for name, value in row.items()}  # fmt: skip
    return RequestResult.from_json(plain)


def _is_json(name: str, value: object) -> bool:
    return name in ("usage", "headers") and isinstance(value, str)


def timeline(
    results: Sequence[RequestResult], series: Mapping[str, Sequence[float | None]]
) -> Timeline:
    """The time line of a load; at least one request was sent.

    A chunk's tokens count when it arrived; where the server's total differs from the client's
    count, every chunk of that request counts for as much more.
    """
    sent = [result for result in results if result.sent_ns is not None]
    origin_ns = min(result.sent_ns or 0 for result in sent)
    end_s = (max(result.end_ns for result in sent) - origin_ns) / _NS
    times, weights = _arrivals(sent, origin_ns)
    bin_s = bin_width_s(end_s, sum(weights))
    return Timeline(
        end_s=end_s,
        in_flight=_in_flight(sent, origin_ns, end_s),
        failed_s=tuple(
            (result.end_ns - origin_ns) / _NS
            for result in sent
            if result.outcome is not RequestOutcome.OK
        ),
        bin_s=bin_s,
        tokens=_rate(times, weights, bin_s, end_s),
        steady_s=_steady(sent, origin_ns),
        waiting=_curve(series, "requests_waiting", origin_ns, end_s),
        kv_usage=_curve(series, "kv_usage_share", origin_ns, end_s),
    )


def bin_width_s(end_s: float, tokens: float) -> float:
    """About 1, 2 or 5 times a power of ten, and a whole number of bins: no part of one at the end.

    At most a hundred, of ten tokens or more on average.
    """
    least = max(end_s / _BINS, _TOKENS_PER_BIN * end_s / tokens if tokens else 0.0)
    wanted = max(min(least, end_s / _FEWEST_BINS), 1e-4)
    power = 10.0 ** math.floor(math.log10(wanted))
    width = next((step * power for step in _STEPS if step * power >= wanted), 10 * power)
    return end_s / max(round(end_s / width), 1)


def _in_flight(results: Sequence[RequestResult], origin_ns: int, end_s: float) -> Curve:
    """Without the moments between an answer and the next request of the same client."""
    steps = [(result.end_ns, -1) for result in results]
    steps += [(result.sent_ns or 0, 1) for result in results]
    count, least_s = 0, end_s * _SHORTEST
    times: list[float] = []
    values: list[float] = []
    for at_ns, step in sorted(steps):
        count += step
        at_s = (at_ns - origin_ns) / _NS
        if times and at_s - times[-1] < least_s:
            values[-1] = float(count)
        else:
            times.append(at_s)
            values.append(float(count))
    return Curve(tuple(times), tuple(values))


def _arrivals(results: Iterable[RequestResult], origin_ns: int) -> tuple[list[float], list[float]]:
    times: list[float] = []
    weights: list[float] = []
    for result in results:
        share = result.output_tokens / result.client_tokens if result.client_tokens else 0.0
        times += [(stamp - origin_ns) / _NS for stamp in result.arrivals_ns]
        weights += [share * count for count in result.chunk_tokens]
    return times, weights


def _rate(times: Sequence[float], weights: Sequence[float], bin_s: float, end_s: float) -> Curve:
    if not times:
        return Curve((), ())
    bins = max(round(end_s / bin_s), 1)
    counts, edges = np.histogram(times, bins=bins, range=(0.0, end_s), weights=weights)
    return Curve(tuple(map(float, edges[:-1])), tuple(float(one) / bin_s for one in counts))


def _steady(results: Sequence[RequestResult], origin_ns: int) -> tuple[float, float] | None:
    window_ns = steady_window_ns(results)
    if window_ns is None:
        return None
    first_ns, last_ns = window_ns
    return (first_ns - origin_ns) / _NS, (last_ns - origin_ns) / _NS


def _curve(
    series: Mapping[str, Sequence[float | None]], name: str, origin_ns: int, end_s: float
) -> Curve:
    """The readings within the load. Stored times of requests and series have one origin."""
    at, values = series.get("at_ns") or (), series.get(name) or ()
    found = [
        ((float(stamp) - origin_ns) / _NS, float(value))
        for stamp, value in zip(at, values, strict=False)
        if stamp is not None and value is not None
    ]
    inside = [one for one in found if 0 <= one[0] <= end_s]
    return Curve(tuple(time for time, _ in inside), tuple(value for _, value in inside))
