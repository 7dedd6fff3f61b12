"""One point of the serving level: workload, warm-up, load, figures."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchx.core import metric
from benchx.core.errors import BenchxError, StoreError
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import Timing
from benchx.measure.telemetry import Telemetry
from benchx.runner.serving_result import (
    Made,
    PointResult,
    cache_label,
    energy_figures,
    followed_by,
    loop_notes,
    request_row,
    server_figures,
    too_many_failed,
    why_unjudged,
)
from benchx.runner.serving_settings import (
    data_end_s,
    load_plan,
    slo_of,
    streams_of,
    time_limits,
    workload_settings,
)
from benchx.runner.session import Session
from benchx.runner.spec import Settings
from benchx.serving.engines.session import RunningEngine
from benchx.serving.kv_footprint import kv_footprint
from benchx.serving.kv_throughput import KvFigures, kv_throughput
from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_session import LoadOutcome, client_figures, client_notes, run_load
from benchx.serving.metrics import LoadFigures, load_figures
from benchx.serving.request import Endpoint, Request, RequestOutcome, RequestResult
from benchx.serving.scrape import Series
from benchx.serving.server_summary import acceptance_seen, summarise
from benchx.serving.worker_job import LoadJob
from benchx.serving.workloads.base import Workload
from benchx.serving.workloads.build import build_workload
from benchx.serving.workloads.openings import differ
from benchx.serving.workloads.prompter import prompter_for
from benchx.store.requests import RequestLog
from benchx.store.spending import Ledger


@dataclass(frozen=True, kw_only=True)
class ServingPoint:
    """One point on a running engine.

    Attributes:
        ledger: Takes every charge, and knows what may still be charged.
    """

    point: Point
    settings: Settings
    session: Session
    engine: RunningEngine
    ledger: Ledger

    def measure(self) -> PointResult:
        """Send the load and reduce it.

        Raises:
            BenchxError: The workload can't be made, the engine died, or nothing can be stored.
        """
        salt = self._salt()
        workload = self._workload(salt)
        chains = chains_of(workload.requests)
        plan = load_plan(self.settings, self.point, chains)
        job = LoadJob(
            endpoint=self._endpoint(), limits=time_limits(self.settings), plan=plan, chains=chains
        )
        before_usd = self._spent_usd()
        warmed = self._warm_up(job, workload.warmup) if self.settings["load"]["warmup"] else ()
        failed = self._not_begun(warmed)
        if failed is not None:
            outcome, reason = failed
            provenance = self.engine.to_json() | {"salt": salt}
            details = {"provenance": provenance}
            spent_usd = self._spent_usd() - before_usd
            return PointResult(outcome=outcome, reason=reason, details=details, spent_usd=spent_usd)
        job = replace(job, plan=replace(plan, budget_usd=self._left_usd()))
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
        made = Made(
            loaded=loaded,
            plan=job.plan,
            workload=workload,
            series=series,
            salt=salt,
            warmed=warmed,
            spent_usd=self._spent_usd() - before_usd,
        )
        return self._result(made, {**seen, **server_figures(series, origin_ns)})

    def _salt(self) -> str:
        """Of this attempt alone: a resumed run must not ask a server what it knows already."""
        spec = self.session.spec
        return f"{spec.run_id} {self.point.point_id} {spec.launch} {secrets.token_hex(8)}"

    def _workload(self, salt: str) -> Workload:
        engine = self.engine
        return build_workload(
            workload_settings(self.settings, self.point),
            seed=self.settings["seed"],
            salt=salt,
            api=engine.endpoint.api,
            exact=engine.engine.exact_length,
            prompter=prompter_for(engine.settings, engine.capabilities, engine.endpoint),
            at_once=streams_of(self.settings, self.point),
        )

    def _spent_usd(self) -> float:
        return self.ledger.spent_usd(self.point.part)

    def _left_usd(self) -> float | None:
        """What may still be charged; None: no limit."""
        limit: float | None = self.settings["load"].get("spend_limit_usd")
        return None if limit is None else limit - self._spent_usd()

    def _not_begun(self, warmed: Sequence[RequestResult]) -> tuple[Outcome, str] | None:
        """Outcome and reason of a point whose warm-up shows that there is no use in its load."""
        left_usd = self._left_usd()
        if left_usd is not None and left_usd <= 0:
            return Outcome.SKIPPED, "the spending limit was reached before the load"
        failed = too_many_failed(warmed, overdue=0, most=1.0) if warmed else None
        return None if failed is None else (failed[0], f"warm-up: {failed[1]}")

    def _charge(self, result: RequestResult, what: str) -> None:
        if result.usage is not None and result.usage.cost is not None:
            self.ledger.add(self.point.part, result.usage.cost, f"{what} {self.point.point_id}")

    def _endpoint(self) -> Endpoint:
        """With usage in every chunk where the engine offers it: it tells tokens from chunks."""
        endpoint = self.engine.endpoint
        wanted = self.engine.capabilities.chunk_usage
        return replace(endpoint, ask_chunk_usage=True) if wanted else endpoint

    def _warm_up(self, job: LoadJob, requests: Sequence[Request]) -> tuple[RequestResult, ...]:
        """As many at once as the load has under way; none of them is a measured one."""
        streams = min(streams_of(self.settings, self.point), len(requests))
        plan = LoadPlan(concurrency=streams, budget_usd=self._left_usd())

        def keep(result: RequestResult) -> None:
            self._charge(result, "warm-up of")

        job = replace(job, plan=plan, chains=chains_of(requests))
        return run_load(job, workers=1, on_result=keep).results

    def _load(self, job: LoadJob, origin_ns: int) -> LoadOutcome:
        workers = self.settings["load"]["workers"]
        log = self._log()

        def keep(result: RequestResult) -> None:
            self._charge(result, "load of")
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
            loaded.results,
            slo=slo_of(self.settings),
            gpus=self.engine.gpus.count,
            overdue=None if made.plan.starts_s is None else loaded.overdue,
        )
        provenance = self._provenance(made, figures)
        failed = too_many_failed(
            loaded.results, overdue=loaded.overdue, most=self.settings["load"]["max_error_rate"]
        )
        outcome, reason = (Outcome.OK, None) if failed is None else failed
        result = PointResult(
            outcome=outcome,
            reason=reason,
            details={"telemetry": telemetry, "provenance": provenance},
            spent_usd=made.spent_usd,
            cut_short=provenance["not_sent"] > 0,
        )
        return result if failed is not None else self._with_figures(result, made, figures)

    def _provenance(self, made: Made, figures: LoadFigures) -> dict[str, Any]:
        reports = made.loaded.reports
        return self.engine.to_json() | {
            "acceptance": acceptance_seen(self.engine.acceptance, made.series),
            "requests": self._log_name(),
            "workload_digest": made.workload.digest,
            "salt": made.salt,
            "outcomes": dict(figures.outcomes),
            "clients": len(reports),
            "client_peak_rss_bytes": max(one.peak_rss_bytes for one in reports),
            "not_sent": sum(one.not_sent for one in reports),
            "overdue": made.loaded.overdue,
        }

    def _with_figures(self, result: PointResult, made: Made, figures: LoadFigures) -> PointResult:
        telemetry = result.details["telemetry"]
        followed, kv = followed_by(made), self._kv(made)
        values = {
            **figures.values,
            **({metric.SPENT.id: made.spent_usd} if made.spent_usd else {}),
            **({} if followed is None else followed.values()),
            **kv.values,
            **summarise(made.series).values(),
            **energy_figures(
                figures.values,
                telemetry.get("power_w_mean"),
                is_only_gpu=self.engine.process is not None
                and self.engine.gpus.count == self.session.device.count == 1,
            ),
            **client_figures(made.loaded.reports),
        }
        wall_s = figures.values[metric.DURATION.id]
        is_whole = made.loaded.stopped is None  # else they did not end, the load was stopped
        end_s = data_end_s(self.settings, self.point, made.plan, wall_s) if is_whole else None
        streams = len(chains_of(made.workload.requests))
        notes = tuple(loop_notes(made, followed, streams, end_s))
        details = {
            "telemetry": telemetry,
            "provenance": {**result.details["provenance"], "kv_prefill_source": kv.source},
            "values": values,
            "samples": figures.samples,
            "timing": self._timing(made, figures, kv, notes),
        }
        return replace(
            result,
            details=details,
            behind=None if followed is None else followed.problem,
            unjudged=why_unjudged(made.plan, followed, streams, end_s),
        )

    def _kv(self, made: Made) -> KvFigures:
        """Where the architecture is unknown there is no figure, and the reason."""
        try:
            footprint = kv_footprint(self.engine.settings)
        except BenchxError as error:
            return KvFigures(missing=error.message)
        return kv_throughput(
            footprint,
            made.loaded.results,
            series=made.series,
            prompts_differ=made.workload.salted and differ(made.workload.requests),
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
            cache=cache_label(figures.values.get(metric.CACHED_SHARE.id), made.series),
            stop=loaded.stopped or "complete",
            samples=figures.outcomes[RequestOutcome.OK.value],
            notes=notes,
        )
