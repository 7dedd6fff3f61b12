"""One point of the serving level: workload, warm-up, load, figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
from benchx.runner.serving_settings import load_plan, slo_of, time_limits, workload_settings
from benchx.runner.session import Session
from benchx.runner.spec import Settings
from benchx.serving.engines.session import RunningEngine
from benchx.serving.kv_footprint import kv_footprint
from benchx.serving.kv_throughput import KvFigures, differ, kv_throughput
from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_session import LoadOutcome, client_figures, client_notes, run_load
from benchx.serving.metrics import LoadFigures, load_figures
from benchx.serving.request import Endpoint, Request, RequestOutcome, RequestResult
from benchx.serving.scrape import Series
from benchx.serving.server_summary import (
    acceptance_seen,
    cache_state,
    computed_share,
    summarise,
)
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
    """

    outcome: Outcome
    reason: str | None
    details: Mapping[str, Any]
    spent_usd: float


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
        figures = load_figures(
            loaded.results, slo=slo_of(self.settings), gpus=self.engine.gpus.count
        )
        spent = sum(r.usage.cost for r in loaded.results if r.usage and r.usage.cost)
        provenance = self.engine.to_json() | {
            "acceptance": acceptance_seen(self.engine.acceptance, made.series),
            "requests": self._log_name(),
            "workload_digest": made.workload.digest,
            "outcomes": dict(figures.outcomes),
            "clients": len(loaded.reports),
            "client_peak_rss_bytes": max(one.peak_rss_bytes for one in loaded.reports),
            "not_sent": sum(one.not_sent for one in loaded.reports),
        }
        details: dict[str, Any] = {"telemetry": telemetry, "provenance": provenance}
        if not figures.outcomes.get(RequestOutcome.OK.value):
            outcome, reason = nothing_ok(loaded.results)
            return PointResult(outcome=outcome, reason=reason, details=details, spent_usd=spent)
        kv = self._kv(made)
        provenance["kv_prefill_source"] = kv.source
        details["values"] = {
            **figures.values,
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
        details["timing"] = self._timing(made, figures, kv)
        return PointResult(outcome=Outcome.OK, reason=None, details=details, spent_usd=spent)

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

    def _timing(self, made: Made, figures: LoadFigures, kv: KvFigures) -> Timing:
        loaded, plan = made.loaded, made.plan
        free = plan.starts_s is not None and plan.concurrency is None
        problem = made.series.problem
        notes = (
            *figures.notes,
            *client_notes(loaded.reports, loaded.results, open_loop=free),
            *made.workload.notes,
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


def nothing_ok(results: Sequence[RequestResult]) -> tuple[Outcome, str]:
    """Outcome and reason of a point without an ok request."""
    if not results:
        return Outcome.CRASHED, "no request was sent"
    counts = Counter(result.outcome for result in results)
    kind, count = counts.most_common(1)[0]
    first = next(result for result in results if result.outcome is kind)
    outcome = Outcome.TIMEOUT if kind is RequestOutcome.TIMEOUT else Outcome.CRASHED
    told = f"{count} x {kind.value} ({first.reason})"
    return outcome, f"none of {len(results)} requests was ok: {told}"


def request_row(result: RequestResult, origin_ns: int) -> dict[str, Any]:
    """A result as stored: without its text, times in ns after the start of the point."""
    row = {name: value for name, value in result.to_json().items() if name not in _DROPPED}
    for name, value in row.items():
        if name == "arrivals_ns":
            row[name] = [stamp - origin_ns for stamp in value]
        elif name.endswith("_ns") and value is not None:
            row[name] = value - origin_ns
    return row
