"""A serving point whose load is searched for: the highest that meets the objective."""

from __future__ import annotations

from dataclasses import replace

from benchx.core import metric
from benchx.core.outcome import Outcome
from benchx.core.record import Timing
from benchx.runner.serving_point import PointResult, ServingPoint
from benchx.serving.load_search import Found, SearchPlan, search_highest

_FOUND = {"concurrency": metric.SLO_CONCURRENCY.id, "request_rate": metric.SLO_RATE.id}


class SearchedPoint(ServingPoint):
    """As a `ServingPoint`, tried at several loads; its figures are those of the load it found."""

    def measure(self) -> PointResult:
        """Search, then give the figures of the highest load that passed.

        If not even the lowest load passes, its figures are given with a note and without an
        answer. Every load has prompts and stored requests of its own.
        """
        search = self.settings["search"]
        whole = search["axis"] == "concurrency"
        results: dict[float, PointResult] = {}

        def meets(load: float) -> bool:
            spent_usd = sum(result.spent_usd for result in results.values())
            result = self._at(search["axis"], int(load) if whole else load, spent_usd)
            results[load] = result
            share = result.details.get("values", {}).get(metric.GOODPUT_SHARE.id, 0.0)
            return bool(share >= search["attainment"])

        plan = SearchPlan(
            low=search["low"],
            high=search["high"],
            whole=whole,
            precision=search["precision"],
            tries=search["tries"],
        )
        found = search_highest(plan, meets)
        best = results[found.tried[0] if found.passing is None else found.passing]
        spent = sum(result.spent_usd for result in results.values())
        return replace(self._answer(search["axis"], found, best), spent_usd=spent)

    def _at(self, axis: str, load: float, spent_usd: float) -> PointResult:
        left_usd = None if self.budget_usd is None else self.budget_usd - spent_usd
        point = replace(self.point, params={**self.point.params, axis: load})
        return ServingPoint(
            point=point,
            settings=self.settings,
            session=self.session,
            engine=self.engine,
            budget_usd=left_usd,
        ).measure()

    def _answer(self, axis: str, found: Found, best: PointResult) -> PointResult:
        if best.outcome is not Outcome.OK:
            return best
        values, timing = dict(best.details["values"]), best.details["timing"]
        if found.passing is not None:
            values[_FOUND[axis]] = float(found.passing)
        loads = ", ".join(f"{load:g}" for load in found.tried)
        notes = [f"searched {axis} over {loads}"]
        if found.passing is None:
            notes.append("the lowest load does not meet the SLO")
        elif found.failing is None:
            notes.append("the highest load that was tried meets the SLO")
        noted: Timing = replace(timing, notes=(*timing.notes, *notes))
        return replace(best, details={**best.details, "values": values, "timing": noted})
