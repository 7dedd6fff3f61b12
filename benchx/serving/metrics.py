"""Figures of a load from its requests: definitions in `core.metric`, percentiles with support.

Failed requests are counted and take no part in latencies. Nothing is ever 0 for want of data: a
figure that does not exist is absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchx.core import metric
from benchx.serving.metrics_request import (
    Gaps,
    RequestFigures,
    chunk_gaps_ms,
    request_figures,
    token_gaps_ms,
)
from benchx.serving.request import RequestOutcome, RequestResult
from benchx.serving.spans import steady_window_ns, wall_s
from benchx.stats.summary import SAMPLES_BEYOND, Numbers

PERCENTILES = (50, 90, 95, 99)

SPREAD = tuple(
    m.id
    for m in (
        metric.TTFT,
        metric.TTFT_INTENDED,
        metric.TTFR,
        metric.TTFO,
        metric.FIRST_BYTE,
        metric.TPOT,
        metric.ITL,
        metric.CHUNK_GAP,
        metric.E2E,
        metric.E2E_INTENDED,
        metric.CLIENT_LAG,
        metric.INTERACTIVITY,
        metric.E2E_INTERACTIVITY,
        metric.PREFILL_SPEED,
    )
)
"""Metrics of which mean and percentiles are given: `ttft_ms_mean`, `ttft_ms_p50`, ..."""

_KEPT = (metric.TTFT.id, metric.TPOT.id, metric.E2E.id, metric.CLIENT_LAG.id)
_NS = 1e9


@dataclass(frozen=True, kw_only=True)
class Slo:
    """Limits that a good request keeps, in ms, counted from its intended start; None: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        return self.ttft_ms is None and self.tpot_ms is None and self.e2e_ms is None

    def is_met(self, figures: RequestFigures) -> bool:
        """Whether an ok request keeps every limit.

        A request without a time per token (one token) keeps that limit; one without a first token
        (not streamed) is judged by its end instead.
        """
        ttft = figures.get(metric.TTFT_INTENDED.id) or figures.get(metric.E2E_INTENDED.id)
        pairs = (
            (self.ttft_ms, ttft),
            (self.tpot_ms, figures.get(metric.TPOT.id)),
            (self.e2e_ms, figures.get(metric.E2E_INTENDED.id)),
        )
        return bool(figures) and all(
            limit is None or value is None or value <= limit for limit, value in pairs
        )


@dataclass(frozen=True, kw_only=True)
class LoadFigures:
    """What a load came to.

    Attributes:
        values: Metric id, with its statistic where it has several -> value.
        samples: Metric id -> per-request values, in the order of the requests.
        outcomes: Outcome -> number of requests.
        notes: What a reader of the figures must know.
    """

    values: Mapping[str, float]
    samples: Mapping[str, tuple[float, ...]]
    outcomes: Mapping[str, int]
    notes: tuple[str, ...] = field(default=())


def load_figures(
    results: Sequence[RequestResult],
    *,
    slo: Slo | None = None,
    gpus: int | None = None,
    overdue: int | None = None,
) -> LoadFigures:
    """All figures of one load.

    Args:
        results: Every request, failed ones included.
        slo: What a good request is; None leaves goodput out.
        gpus: GPUs that were observed to serve; None leaves per-GPU figures out.
        overdue: Requests that were due and never sent; they count as errors and as misses of the
            SLO. None in a closed loop, where none is due.
    """
    ordered = sorted(results, key=lambda result: result.index)
    ok = [result for result in ordered if result.outcome is RequestOutcome.OK]
    figures = [request_figures(result) for result in ok]
    outcomes = Counter(result.outcome.value for result in ordered)
    values: dict[str, float] = {}
    due = len(ordered) + (overdue or 0)
    if due:
        values[metric.ERROR_RATE.id] = 1 - len(ok) / due
    if overdue is not None:
        values[metric.OVERDUE.id] = float(overdue)
    if ok:
        pooled, gaps = _pooled(figures), _gaps(ok)
        units = dict.fromkeys(gaps, sum(len(result.arrivals_ns) > 1 for result in ok))
        found = pooled | gaps
        values |= {
            key: value
            for name in SPREAD
            for key, value in spread(name, found.get(name, ()), units.get(name))
        }
        values |= _rates(ordered, ok, gpus)
        values |= _tokens(ok)
        values |= _spent(ordered)
        values |= _steady(ordered, ok)
        if slo is not None and not slo.is_empty:
            values |= _goodput(figures, due, wall_s(ordered), slo)
        samples = {name: tuple(pooled[name]) for name in _KEPT if pooled.get(name)}
    else:
        samples = {}
    return LoadFigures(values=values, samples=samples, outcomes=outcomes, notes=_notes(ordered, ok))


def spread(name: str, samples: Numbers, units: int | None = None) -> list[tuple[str, float]]:
    """Mean, median and the bad tail of a registered metric.

    `_p90`, `_p95` and `_p99` are the value that 90, 95 or 99 % of the samples don't exceed where
    lower is better, and the value that so many reach or exceed where higher is better. One is left
    out where too few samples support it.

    Args:
        name: Id of the metric.
        samples: In its unit.
        units: Independent units that the samples come from, such as the requests of gaps between
            tokens: those are the support. None: each sample is one.
    """
    values = np.asarray(samples, dtype=np.float64)
    if not values.size:
        return []
    more_is_better = metric.METRICS.get(name).direction is metric.Direction.HIGHER
    found = [(f"{name}_mean", float(np.mean(values))), (f"{name}_p50", float(np.median(values)))]
    for q in PERCENTILES[1:]:
        supported = (values.size if units is None else units) * (100 - q) >= 100 * SAMPLES_BEYOND
        if supported:
            place = 100 - q if more_is_better else q
            found.append((f"{name}_p{q}", float(np.percentile(values, place))))
    return found


def _pooled(figures: Sequence[RequestFigures]) -> dict[str, list[float]]:
    pooled: dict[str, list[float]] = {}
    for one in figures:
        for name, value in one.items():
            if value is not None:
                pooled.setdefault(name, []).append(value)
    return pooled


def _gaps(ok: Sequence[RequestResult]) -> dict[str, Gaps]:
    """Gaps between chunks and, where all of them hold known numbers of tokens, between tokens."""
    gaps = {metric.CHUNK_GAP.id: np.concatenate([chunk_gaps_ms(result) for result in ok])}
    of_tokens = [one for one in map(token_gaps_ms, ok) if one is not None]
    if len(of_tokens) == len(ok):
        gaps[metric.ITL.id] = np.concatenate(of_tokens)
    return gaps


def _rates(
    results: Sequence[RequestResult], ok: Sequence[RequestResult], gpus: int | None
) -> dict[str, float]:
    seconds = wall_s(results)
    output = sum(result.output_tokens for result in ok)
    inputs = _sum_known(ok, lambda result: result.input_tokens)
    rates = {
        metric.DURATION.id: seconds,
        metric.REQUEST_THROUGHPUT.id: len(ok) / seconds,
        metric.OUTPUT_THROUGHPUT.id: output / seconds,
        metric.IN_FLIGHT.id: sum(
            (result.end_ns - result.sent_ns) / _NS
            for result in results
            if result.sent_ns is not None
        )
        / seconds,
        metric.IN_FLIGHT_MAX.id: float(most_in_flight(results)),
    }
    if inputs is not None:
        rates[metric.INPUT_THROUGHPUT.id] = inputs / seconds
        rates[metric.TOTAL_THROUGHPUT.id] = (inputs + output) / seconds
    if gpus:
        rates[metric.OUTPUT_PER_GPU.id] = output / seconds / gpus
        if inputs is not None:
            rates[metric.TOTAL_PER_GPU.id] = (inputs + output) / seconds / gpus
    return rates


def most_in_flight(results: Sequence[RequestResult]) -> int:
    """Most requests that were sent and not ended at one time."""
    sent = [result for result in results if result.sent_ns is not None]
    steps = [(result.end_ns, -1) for result in sent]
    steps += [(result.sent_ns or 0, 1) for result in sent]
    count = most = 0
    for _, step in sorted(steps):  # at equal times an end comes first
        count += step
        most = max(most, count)
    return most


def _sum_known(
    results: Sequence[RequestResult], count: Callable[[RequestResult], int | None]
) -> int | None:
    counts = [count(result) for result in results]
    known = [value for value in counts if value is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _tokens(ok: Sequence[RequestResult]) -> dict[str, float]:
    """Lengths, and what the servers said of caches."""
    values = {metric.OUTPUT_TOKENS.id: float(np.mean([result.output_tokens for result in ok]))}
    inputs = _sum_known(ok, lambda result: result.input_tokens)
    if inputs is not None:
        values[metric.INPUT_TOKENS.id] = inputs / len(ok)
    streamed = [result for result in ok if result.arrivals_ns]
    if streamed:
        chunks = sum(len(result.arrivals_ns) for result in streamed)
        values[metric.CHUNK_TOKENS.id] = sum(r.streamed_tokens for r in streamed) / chunks
    told = [
        (result.usage.cached_tokens, result.usage.prompt_tokens)
        for result in ok
        if result.usage and result.usage.cached_tokens is not None and result.usage.prompt_tokens
    ]
    if told:
        values[metric.CACHED_SHARE.id] = sum(c for c, _ in told) / sum(p or 0 for _, p in told)
    return values


def _spent(results: Sequence[RequestResult]) -> dict[str, float]:
    """What was charged; a service charges for answers that were cut short, too."""
    costs = [r.usage.cost for r in results if r.usage and r.usage.cost is not None]
    return {metric.SPENT.id: sum(costs)} if costs else {}


def _goodput(
    figures: Sequence[RequestFigures], requests: int, seconds: float, slo: Slo
) -> dict[str, float]:
    good = sum(slo.is_met(one) for one in figures)
    return {metric.GOODPUT.id: good / seconds, metric.GOODPUT_SHARE.id: good / requests}


def _steady(results: Sequence[RequestResult], ok: Sequence[RequestResult]) -> dict[str, float]:
    """Rates while the load was full, where it was for long enough.

    A chunk counts when it arrived; where the server's total differs from the client's count, every
    chunk of that request counts for as much more.
    """
    window_ns = steady_window_ns(results)
    if window_ns is None:
        return {}
    first_ns, last_ns = window_ns
    seconds = (last_ns - first_ns) / _NS
    ended = sum(first_ns < result.end_ns <= last_ns for result in ok)
    tokens = 0.0
    for result in ok:
        share = result.output_tokens / result.client_tokens if result.client_tokens else 0.0
        pairs = zip(result.arrivals_ns, result.chunk_tokens, strict=True)
        tokens += share * sum(count for stamp, count in pairs if first_ns < stamp <= last_ns)
    rates = {metric.STEADY_REQUESTS.id: ended / seconds}
    return rates | ({metric.STEADY_OUTPUT.id: tokens / seconds} if tokens else {})


def _notes(results: Sequence[RequestResult], ok: Sequence[RequestResult]) -> tuple[str, ...]:
    """`name (k of n)` for each note of the ok requests, and for each kind of failure."""
    counts = Counter(note for result in ok for note in result.notes)
    notes = [f"{name} ({count} of {len(ok)})" for name, count in counts.items()]
    failed = Counter(r.outcome.value for r in results if r.outcome is not RequestOutcome.OK)
    notes += [f"{name} ({count} of {len(results)})" for name, count in failed.items()]
    off = [
        result
        for result in ok
        if result.prompt_tokens is not None
        and result.usage is not None
        and result.usage.prompt_tokens not in (None, result.prompt_tokens)
    ]
    if off:
        notes.append(f"prompt_count_differs ({len(off)} of {len(ok)})")
    return tuple(notes)
