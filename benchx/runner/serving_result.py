"""What came of the load of a serving point: whether it has figures, and what is said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchx.core import metric
from benchx.core.outcome import Outcome
from benchx.serving.keeping_up import KeepingUp, keeping_up
from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_session import LoadOutcome
from benchx.serving.request import RequestOutcome, RequestResult
from benchx.serving.scrape import Series
from benchx.serving.server_summary import cache_state, computed_share, summarise
from benchx.serving.workloads.base import Workload

_DROPPED = ("text", "reasoning")
_UNITS = "requests or sessions to send"


@dataclass(frozen=True, kw_only=True)
class PointResult:
    """What became of a point.

    Attributes:
        reason: Why it is not ok.
        details: Further fields of its record.
        spent_usd: What the service charged, for the warm-up too.
        cut_short: Whether requests were left out because the load was stopped.
        behind: Why the server does not keep up with an open loop, or None.
        unjudged: Why the load can't tell whether the server bears it, or None.
    """

    outcome: Outcome
    reason: str | None
    details: Mapping[str, Any]
    spent_usd: float
    cut_short: bool = False
    behind: str | None = None
    unjudged: str | None = None


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a load was, and what came of it.

    Attributes:
        salt: What its prompts were drawn with besides the seed.
        warmed: Results of the warm-up.
        spent_usd: What the service charged, for the warm-up too.
    """

    loaded: LoadOutcome
    plan: LoadPlan
    workload: Workload
    series: Series
    salt: str
    warmed: tuple[RequestResult, ...]
    spent_usd: float


def energy_figures(
    values: Mapping[str, float], power_w: float | None, *, is_only_gpu: bool
) -> dict[str, float]:
    """Energy per output token, J: mean power / output tokens per second.

    Args:
        values: Figures of the load.
        power_w: Mean power while it ran, of one GPU; None where it can't be read.
        is_only_gpu: Whether the engine ran here on the only GPU: no other one's power is read.
    """
    rate = values.get(metric.OUTPUT_THROUGHPUT.id)
    return {metric.ENERGY.id: power_w / rate} if is_only_gpu and power_w and rate else {}


def cache_label(told: float | None, series: Series) -> str:
    """A label by usage, else by the server's counters: was the prompts' cache cold or warm?"""
    computed = computed_share(series)
    if told is None and computed is not None:
        told = 1 - computed
    return cache_state(told) or "unknown"


def server_figures(series: Series, origin_ns: int) -> dict[str, Any]:
    """What the server told of itself, where it did."""
    if not series.readings:
        return {} if series.problem is None else {"server_metrics_problem": series.problem}
    return {"server": asdict(summarise(series)), "server_series": series.columns(origin_ns)}


def followed_by(made: Made) -> KeepingUp | None:
    """How the server followed an open loop; None for a closed one."""
    starts_s = made.plan.starts_s
    if starts_s is None:
        return None
    ends = {chain[-1].index: chain[0].index for chain in chains_of(made.workload.requests)}
    return keeping_up(made.loaded.results, starts_s[: made.loaded.due], ends)


def loop_notes(
    made: Made, followed: KeepingUp | None, streams: int, data_end_s: float | None
) -> Iterator[str]:
    """What a reader must know of a load that was not as asked for, or that a server fell behind.

    Args:
        made: The load.
        followed: See `followed_by`.
        streams: Requests or sessions that could be under way at once.
        data_end_s: When the data ended, s, if that was before `load.duration`.
    """
    plan = made.plan
    failed = [one for one in made.warmed if one.outcome is not RequestOutcome.OK]
    if failed:
        told = f"{failed[0].outcome.value}: {failed[0].reason}"
        yield f"warm-up: {len(failed)} of {len(made.warmed)} requests failed ({told})"
    if followed is not None and followed.problem is not None:
        yield f"the server does not keep up: {followed.problem}"
    if plan.starts_s is None and plan.concurrency and streams < plan.concurrency:
        yield f"in flight at most {streams} of {plan.concurrency}: there are no more {_UNITS}"
    if data_end_s is not None:
        yield f"the data ended after {data_end_s:.3g} s of load.duration {plan.duration_s:g} s"


def why_unjudged(
    plan: LoadPlan, followed: KeepingUp | None, streams: int, data_end_s: float | None
) -> str | None:
    """Why a load can't tell whether the server bears it, or None; see `loop_notes`."""
    if plan.starts_s is None:
        return f"there are {streams} {_UNITS} only" if streams < (plan.concurrency or 0) else None
    if data_end_s is not None:
        return f"the data end after {data_end_s:.3g} s"
    if followed is not None and not followed.is_known:
        return "too few requests start to judge it: raise load.duration"
    return None


def too_many_failed(
    results: Sequence[RequestResult], *, overdue: int, most: float
) -> tuple[Outcome, str] | None:
    """Outcome and reason of a point of which too few requests are left for a figure, or None.

    Args:
        results: Every request of the load.
        overdue: Requests that were due and never sent.
        most: Largest share of the requests that may fail.
    """
    due = len(results) + overdue
    if not results:
        return Outcome.CRASHED, "no request was sent"
    failed = Counter(r.outcome for r in results if r.outcome is not RequestOutcome.OK)
    missing = failed.total() + overdue
    if failed.total() < len(results) and missing <= most * due:
        return None
    told = [f"{count} x {kind.value} ({_first(results, kind)})" for kind, count in failed.items()]
    told += [f"{overdue} x due and never sent"] if overdue else []
    outcome = Outcome.CRASHED
    if failed and failed.most_common(1)[0][0] is RequestOutcome.TIMEOUT:
        outcome = Outcome.TIMEOUT
    counts = ", ".join(told)
    if failed.total() == len(results):
        return outcome, f"none of {due} requests was ok: {counts}"
    return outcome, (
        f"{missing} of {due} requests failed: {counts}; load.max_error_rate is {most:.3g}, "
        "set it higher where overload is what you measure"
    )


def _first(results: Sequence[RequestResult], kind: RequestOutcome) -> str | None:
    """The reason of the first request that ended so."""
    return next(result.reason for result in results if result.outcome is kind)


def request_row(result: RequestResult, origin_ns: int) -> dict[str, Any]:
    """A result as stored: without its text, times in ns after the start of the point."""
    row = {name: value for name, value in result.to_json().items() if name not in _DROPPED}
    for name, value in row.items():
        if name == "arrivals_ns":
            row[name] = [stamp - origin_ns for stamp in value]
        elif name.endswith("_ns") and value is not None:
            row[name] = value - origin_ns
    return row
