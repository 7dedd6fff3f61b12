"""`run_load`: a load in this process or in several, whichever can carry it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from time import monotonic_ns

import numpy as np

from benchx.core import metric
from benchx.core.errors import RunFailed
from benchx.serving.client import Client, new_event_loop
from benchx.serving.http_pool import CantConnect
from benchx.serving.load import ClientReport, LoadRun
from benchx.serving.metrics import spread
from benchx.serving.request import RequestResult
from benchx.serving.worker_job import LoadJob, run_in_workers, worker_count

TOKENS_PER_STREAM_S = 50.0
"""Of a usual stream; see `worker_job.STREAMS_PER_WORKER`."""

REQUEST_TOKENS = 50
"""What a request costs the client besides its tokens, in tokens."""

LAG_FLOOR_MS = 5.0
LAG_SHARE = 0.05
CPU_LIMIT = 0.9
"""Beyond these the client is said to have been the limit, see `client_notes`."""


@dataclass(frozen=True, kw_only=True)
class LoadOutcome:
    """What came of a load.

    Attributes:
        results: Every request that was sent.
        reports: Of each client process.
    """

    results: tuple[RequestResult, ...]
    reports: tuple[ClientReport, ...]

    @property
    def overdue(self) -> int:
        """Requests that were due in an open loop and never sent."""
        return sum(report.overdue for report in self.reports)

    @property
    def due(self) -> int:
        """Chains that were due in an open loop, sent or not."""
        return sum(report.due for report in self.reports)

    @property
    def stopped(self) -> str | None:
        """Why the load was stopped early, or None."""
        return next((report.stopped for report in self.reports if report.stopped), None)


def run_load(
    job: LoadJob,
    *,
    workers: int | None = None,
    isolated: bool = False,
    on_result: Callable[[RequestResult], str | None] = lambda _: None,
) -> LoadOutcome:
    """Send everything and wait for every answer.

    Args:
        job: What to send where.
        workers: Client processes; None chooses by the work (`equal_streams`).
        isolated: Whether a single client has a process of its own too, where no other thread of
            this one can hold it up.
        on_result: Called with every result as it arrives; returns why to stop, or None.

    Raises:
        RunFailed: Connections can't be opened, a client process died, or a request that was sent
            has no result.
        UsageError: The endpoint can't be used.
    """
    results: list[RequestResult] = []

    def keep(result: RequestResult) -> str | None:
        results.append(result)
        return on_result(result)

    count = worker_count(workers, equal_streams(job))
    alone = count == 1 and not isolated
    reports = (_in_this_process(job, keep),) if alone else run_in_workers(job, count, keep)
    _account(job, reports, len(results))
    ordered = sorted(results, key=lambda result: result.index)
    return LoadOutcome(results=tuple(ordered), reports=reports)


def equal_streams(job: LoadJob) -> int:
    """Streams at a usual 50 tokens/s that cost the client what this load does.

    Of an open loop without a limit nobody knows how many requests overlap, but its work follows
    from the rate: tokens to decode, and for each request about what 50 tokens cost (its connection,
    head and end).
    """
    starts_s, limit = job.plan.starts_s, job.plan.concurrency
    if not starts_s:
        return limit or 0
    span_s = max(starts_s[-1] - starts_s[0], 1.0)
    tokens = sum(one.max_tokens + REQUEST_TOKENS for chain in job.chains for one in chain)
    streams = ceil(tokens / span_s / TOKENS_PER_STREAM_S)
    return streams if limit is None else min(limit, streams)


def _account(job: LoadJob, reports: Sequence[ClientReport], results: int) -> None:
    """Every request that was sent has a result: figures of those that are left would flatter."""
    sent = sum(map(len, job.chains)) - sum(report.not_sent for report in reports)
    if results != sent:
        raise RunFailed(f"{sent} requests were sent and {results} results came of them")


def _in_this_process(job: LoadJob, keep: Callable[[RequestResult], str | None]) -> ClientReport:
    async def main() -> ClientReport:
        async with Client(job.endpoint, job.limits) as client:
            run = LoadRun(client, job.plan, job.chains, keep)
            await run.prepare()
            return await run.run(monotonic_ns())

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main())
    except CantConnect as error:
        raise RunFailed(str(error)) from error


def client_figures(reports: Sequence[ClientReport]) -> dict[str, float]:
    """The client's own figures: the busiest process, the lags of all."""
    lags = [lag for report in reports for lag in report.loop_lag_ms]
    values = dict(spread(metric.LOOP_LAG.id, lags))
    if reports:
        values[metric.CLIENT_CPU.id] = max(report.cpu_share for report in reports)
    return values


def client_notes(
    reports: Sequence[ClientReport], results: Sequence[RequestResult], *, open_loop: bool
) -> tuple[str, ...]:
    """Why the client, and not the server, may have set the figures; empty when it did not.

    Also what a load that was stopped left out though it was due: who waits longest is missing then.

    A lag counts when its 99th percentile exceeds 5 ms and 5 % of the median time to first token;
    the send lag only in an open loop without a limit, where nothing else can delay a send.
    """
    notes = []
    if any(report.cpu_share > CPU_LIMIT for report in reports):
        notes.append("client_limited: a client process used all of a core")
    waits = [
        (result.first_token_ns - result.sent_ns) / 1e6
        for result in results
        if result.first_token_ns is not None and result.sent_ns is not None
    ]
    limit_ms = max(LAG_FLOOR_MS, LAG_SHARE * float(np.median(waits))) if waits else LAG_FLOOR_MS
    lags = [lag for report in reports for lag in report.loop_lag_ms]
    if lags and float(np.percentile(lags, 99)) > limit_ms:
        notes.append(f"client_limited: arrivals were seen late (p99 above {limit_ms:.1f} ms)")
    sends = [(r.sent_ns - r.intended_ns) / 1e6 for r in results if r.sent_ns is not None]
    if open_loop and sends and float(np.percentile(sends, 99)) > limit_ms:
        notes.append(f"client_limited: requests were sent late (p99 above {limit_ms:.1f} ms)")
    if overdue := sum(report.overdue for report in reports):
        notes.append(
            f"latencies flatter: {overdue} requests were due and had not been sent when the load "
            "was stopped; they count as errors and as misses of the SLO"
        )
    return tuple(notes)
