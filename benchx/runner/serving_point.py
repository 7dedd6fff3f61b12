"""One point of the serving level: workload, warm-up, load, figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchx.core import metric
from benchx.core.errors import BenchxError, StoreError, UsageError
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import Timing
from benchx.measure.telemetry import Telemetry
from benchx.runner.serving_settings import (
    data_end_s,
    load_plan,
    slo_of,
    time_limits,
    workload_settings,
)
from benchx.runner.session import Session
from benchx.runner.spec import Settings
from benchx.serving.engines.session import RunningEngine
from benchx.serving.keeping_up import KeepingUp, keeping_up
from benchx.serving.kv_footprint import kv_footprint
from benchx.serving.kv_throughput import KvFigures, differ, kv_throughput
from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_session import LoadOutcome, client_figures, client_notes, run_load
from benchx.serving.metrics import LoadFigures, load_figures
from benchx.serving.request import Endpoint, Request, RequestOutcome, RequestResult
from benchx.serving.scrape import Series
from benchx.serving.server_summary import cache_state, computed_share, summarise
from benchx.serving.worker_job import LoadJob
from benchx.serving.workloads.base import Workload
from benchx.serving.workloads.build import build_workload
from benchx.serving.workloads.prompter import Prompter, prompter_for
from benchx.store.requests import RequestLog

_DROPPED = ("text", "reasoning")
_WARMUP_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class PointResult:
    """What became of a point.

    Attributes:
        reason: Why it is not ok.
        details: Further fields of its record.
        spent_usd: What the service charged.
        keeping_up: How the server followed an open loop; None for a closed one.
        data_end_s: When the data ended, s, if that was before `load.duration`.
    """

    outcome: Outcome
    reason: str | None
    details: Mapping[str, Any]
    spent_usd: float
    keeping_up: KeepingUp | None = None
    data_end_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a load was, and what came of it."""

    loaded: LoadOutcome
    plan: LoadPlan
    workload: Workload
    series: Series


@dataclass(frozen=True, kw_only=True)
class ServingPoint:
    """One point on a running engine.

    Attributes:
        budget_usd: What may still be charged; None: no limit.
    """

    point: Point
    settings: Settings
    session: Session
    engine: RunningEngine
    budget_usd: float | None = None

    def measure(self) -> PointResult:
        """Send the load and reduce it.

        Raises:
            BenchxError: The workload can't be made, the engine died, or nothing can be stored.
        """
        workload = self._workload()
        chains = chains_of(workload.requests)
        job = LoadJob(
            endpoint=self._endpoint(),
            limits=time_limits(self.settings),
            plan=replace(load_plan(self.settings, self.point, chains), budget_usd=self.budget_usd),
            chains=chains,
        )
        if self.settings["load"]["warmup"]:
            self._warm_up(job, workload.warmup)
        origin_ns = monotonic_ns()
        telemetry, scraper = Telemetry(self.session.device), self.engine.scraper()
        telemetry.start()
        if scraper is not None:
            scraper.start()
        try:
            loaded = self._load(job, origin_ns)
        finally:
            seen = telemetry.stop()
            series = Series() if scraper is None else scraper.stop()
        self.engine.fail_if_gone()
        made = Made(loaded=loaded, plan=job.plan, workload=workload, series=series)
        return self._result(made, {**seen, **_server(series, origin_ns)})

    def _workload(self) -> Workload:
        engine = self.engine
        return build_workload(
            workload_settings(self.settings, self.point),
            seed=self.settings["seed"],
            # Lengths and times don't depend on it; words do, so that no cache knows them.
            salt=f"{self.session.spec.run_id} {self.point.point_id} {self.session.spec.launch}",
            api=engine.endpoint.api,
            exact=engine.engine.exact_length,
            prompter=self._prompter(),
        )

    def _prompter(self) -> Prompter | None:
        """None where nobody can count tokens; a data set that must will say so."""
        engine = self.engine
        try:
            return prompter_for(engine.settings, engine.capabilities, engine.endpoint)
        except UsageError:
            return None

    def _endpoint(self) -> Endpoint:
        """With usage in every chunk where the engine offers it: it tells tokens from chunks."""
        endpoint = self.engine.endpoint
        wanted = self.engine.capabilities.chunk_usage
        return replace(endpoint, ask_chunk_usage=True) if wanted else endpoint

    def _warm_up(self, job: LoadJob, requests: Sequence[Request]) -> None:
        if requests:
            plan = LoadPlan(concurrency=min(_WARMUP_AT_ONCE, len(requests)))
            run_load(replace(job, plan=plan, chains=chains_of(requests)), workers=1)

    def _load(self, job: LoadJob, origin_ns: int) -> LoadOutcome:
        workers = self.settings["load"]["workers"]
        log = self._log()

        def keep(result: RequestResult) -> None:
            if log is not None:
                log.append(request_row(result, origin_ns))

        finished = False
        try:
            loaded = run_load(
                job,
                workers=None if workers == "auto" else workers,
                isolated=True,  # telemetry and scraping are threads of this process
                on_result=keep,
            )
            finished = True
        finally:
            if log is not None and not finished:
                with suppress(StoreError):
                    log.abandon()
        if log is not None:
            log.finish()
        return loaded

    def _log(self) -> RequestLog | None:
        spec = self.session.spec
        if spec.folder is None:
            return None
        return RequestLog(Path(spec.folder), self._log_name())

    def _log_name(self) -> str:
        spec = self.session.spec
        return f"{self.point.point_id}-launch-{spec.launch}-worker-{spec.worker}"

    def _result(self, made: Made, telemetry: Mapping[str, Any]) -> PointResult:
        loaded = made.loaded
        is_open = made.plan.starts_s is not None
        figures = load_figures(
            loaded.results,
            slo=slo_of(self.settings),
            gpus=self.engine.gpus.count,
            overdue=loaded.overdue if is_open else None,
        )
        spent = sum(r.usage.cost for r in loaded.results if r.usage and r.usage.cost)
        provenance = self.engine.to_json() | {
            "requests": self._log_name(),
            "workload_digest": made.workload.digest,
            "outcomes": dict(figures.outcomes),
            "clients": len(loaded.reports),
            "client_peak_rss_bytes": max(one.peak_rss_bytes for one in loaded.reports),
            "not_sent": sum(one.not_sent for one in loaded.reports),
            "overdue": loaded.overdue,
        }
        details: dict[str, Any] = {"telemetry": telemetry, "provenance": provenance}
        failed = too_many_failed(
            loaded.results, overdue=loaded.overdue, most=self.settings["load"]["max_error_rate"]
        )
        if failed is not None:
            outcome, reason = failed
            return PointResult(outcome=outcome, reason=reason, details=details, spent_usd=spent)
        followed = followed_by(made)
        kv = self._kv(made)
        provenance["kv_prefill_source"] = kv.source
        details["values"] = {
            **figures.values,
            **({} if followed is None else followed.values()),
            **kv.values,
            **summarise(made.series).values(),
            **energy_figures(
                figures.values,
                telemetry.get("power_w_mean"),
                is_only_gpu=self.engine.process is not None
                and self.engine.gpus.count == self.session.device.count == 1,
            ),
            **client_figures(loaded.reports),
        }
        details["samples"] = figures.samples
        end_s = data_end_s(self.settings, self.point, made.plan, figures.values[metric.DURATION.id])
        notes = tuple(_loop_notes(made.plan, followed, end_s))
        details["timing"] = self._timing(made, figures, kv, notes)
        return PointResult(
            outcome=Outcome.OK,
            reason=None,
            details=details,
            spent_usd=spent,
            keeping_up=followed,
            data_end_s=end_s,
        )

    def _kv(self, made: Made) -> KvFigures:
        """Where the architecture is unknown there is no figure, and the reason."""
        try:
            footprint = kv_footprint(self.engine.settings)
        except BenchxError as error:
            return KvFigures(missing=error.message)
        salted = bool(workload_settings(self.settings, self.point).get("salted", True))
        return kv_throughput(
            footprint,
            made.loaded.results,
            series=made.series,
            prompts_differ=salted and differ(made.workload.requests),
        )

    def _timing(
        self, made: Made, figures: LoadFigures, kv: KvFigures, more: Sequence[str]
    ) -> Timing:
        loaded, plan = made.loaded, made.plan
        free = plan.starts_s is not None and plan.concurrency is None
        problem = made.series.problem
        notes = (
            *figures.notes,
            *client_notes(loaded.reports, loaded.results, open_loop=free),
            *made.workload.notes,
            *more,
            *([f"server metrics are incomplete: {problem}"] if problem else []),
            *([f"no KV throughput: {kv.missing}"] if kv.missing else []),
        )
        return Timing(
            timer="client",
            cache=_cache(figures.values.get(metric.CACHED_SHARE.id), made.series),
            stop=loaded.stopped or "complete",
            samples=figures.outcomes[RequestOutcome.OK.value],
            notes=notes,
        )


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


def _cache(told: float | None, series: Series) -> str:
    """A label by usage, else by the server's counters: was the prompts' cache cold or warm?"""
    computed = computed_share(series)
    if told is None and computed is not None:
        told = 1 - computed
    return cache_state(told) or "unknown"


def _server(series: Series, origin_ns: int) -> dict[str, Any]:
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


def _loop_notes(
    plan: LoadPlan, followed: KeepingUp | None, data_end_s: float | None
) -> Iterator[str]:
    """What a reader of an open loop must know, and that a load was shorter than asked for."""
    if followed is not None and followed.problem is not None:
        yield f"the server does not keep up: {followed.problem}"
    if data_end_s is not None:
        yield f"the data ended after {data_end_s:.3g} s of load.duration {plan.duration_s:g} s"


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
