"""A serving point whose load is searched for: the highest that meets the objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from benchx.core import metric
from benchx.core.outcome import Outcome
from benchx.core.record import Timing
from benchx.runner.serving_point import ServingPoint
from benchx.runner.serving_result import PointResult
from benchx.serving.load_search import Found, SearchPlan, search_highest

_FOUND = {
    "concurrency": metric.SLO_CONCURRENCY.id,
    "request_rate": metric.SLO_RATE.id,
    "session_rate": metric.SLO_SESSION_RATE.id,
}


class SearchedPoint(ServingPoint):
    """As a `ServingPoint`, tried at several loads; its figures are those of the load it found."""

    def measure(self) -> PointResult:
        """Search, then give the figures of the highest load that passed.

        If not even the lowest load passes, its figures are given with a note and without an
        answer. Every load has prompts and stored requests of its own.
        """
        search = self.settings["search"]
        results: dict[float, PointResult] = {}

        def meets(load: float) -> bool | None:
            left_usd = self._left_usd()
            if results and left_usd is not None and left_usd <= 0:
                return None
            result = results[load] = self._at(search["axis"], load)
            left_usd = self._left_usd()
            if left_usd is not None and left_usd <= 0 and result.cut_short:
                return None  # cut short, so that what it was like is not known
            share = result.details.get("values", {}).get(metric.GOODPUT_SHARE.id, 0.0)
            return _bears(result) if share >= search["attainment"] else False

        found = search_highest(_plan(search), meets)
        best = next(iter(results.values())) if found.passing is None else results[found.passing]
        spent = sum(result.spent_usd for result in results.values())
        return replace(self._answer(search["axis"], found, results, best), spent_usd=spent)

    def _at(self, axis: str, load: float) -> PointResult:
        value = int(load) if axis == "concurrency" else load
        point = replace(self.point, params={**self.point.params, axis: value})
        return ServingPoint(
            point=point,
            settings=self.settings,
            session=self.session,
            engine=self.engine,
            ledger=self.ledger,
        ).measure()

    def _answer(
        self, axis: str, found: Found, results: Mapping[float, PointResult], best: PointResult
    ) -> PointResult:
        if best.outcome is not Outcome.OK:
            return best
        values, timing = dict(best.details["values"]), best.details["timing"]
        spent_usd = sum(result.spent_usd for result in results.values())
        if spent_usd:
            values[metric.SPENT.id] = spent_usd
        if found.passing is not None:
            values[_FOUND[axis]] = float(found.passing)
        details = dict(best.details)
        details["provenance"] = {
            **best.details["provenance"],
            "searched": {"axis": axis, "found": found.passing},
        }
        listed = ", ".join(f"{load:g}" for load in results)
        notes = (f"searched {axis} over {listed}", *_told(found), *_behind(axis, results))
        noted: Timing = replace(timing, notes=(*timing.notes, *notes))
        return replace(best, details={**details, "values": values, "timing": noted})


def _plan(search: Mapping[str, Any]) -> SearchPlan:
    """The bounds as the scenario has them: of a concurrency they are whole numbers."""
    return SearchPlan(
        low=search["low"],
        high=search["high"],
        whole=search["axis"] == "concurrency",
        precision=search["precision"],
        tries=search["tries"],
    )


def _behind(axis: str, results: Mapping[float, PointResult]) -> Iterator[str]:
    """Loads with which the server did not keep up, or of which that can't be told."""
    for load, result in results.items():
        if why := result.behind or result.unjudged:
            yield f"at {axis} {load:g} {why}"


def _bears(result: PointResult) -> bool | None:
    """Whether the server bore the load for all of its time; None where that can't be told."""
    if result.behind is not None:
        return False
    return True if result.unjudged is None else None


def _told(found: Found) -> Iterator[str]:
    """What a reader must know of the limit that was found."""
    if found.passing is None and found.failing is not None:
        yield "the lowest load does not meet the SLO"
    elif found.failing is None and found.tried:
        yield "the highest load that was tried meets the SLO"
    elif found.failing is not None:
        yield f"the lowest load that was tried and does not meet the SLO: {found.failing:g}"
    if not found.complete:
        yield (
            "the search ended early: its tries ran out, the spending limit was reached, or a load "
            "can't be judged"
        )
