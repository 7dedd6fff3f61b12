"""What a workload can't do without, and what contradicts the load that it is sent with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from benchx.core.axes import Params, Scalar
from benchx.core.errors import ScenarioError
from benchx.core.units import UnitError, parse_count
from benchx.scenario.located import Located
from benchx.scenario.serving_axes import RATE_AXES, WORKLOAD_AXES
from benchx.scenario.vocabulary import ServingWords

if TYPE_CHECKING:
    from benchx.scenario.serving import ServingPart


def count_setting(needs: Collection[str]) -> str | None:
    """The setting that says how many of a made-up data set start; None for data in a file."""
    return next((name for name in ("requests", "sessions") if name in needs), None)


def check_rate(part: ServingPart, origin: Located, *, chained: bool) -> None:
    """A rate is that of what starts: of requests, or of sessions where requests follow in them."""
    wrong, right = RATE_AXES if chained else reversed(RATE_AXES)
    for section in ("axes", "fixed"):
        if wrong in getattr(part, section):
            place, key = origin.at((section, wrong)).where, f"{section}.{wrong}"
            break
    else:
        if part.search is None or part.search.axis != wrong:
            return
        place, key = origin.at(("search",)).where, "search.axis"
    what = "sends sessions" if chained else "has no sessions"
    raise ScenarioError(
        place,
        key=key,
        problem=f"data set {part.workload.dataset} {what}",
        expected=f"{right} (what starts in a second)",
    )


def _check_count(part: ServingPart, origin: Located, needs: tuple[str, ...]) -> tuple[str, ...]:
    """What is left of a data set's needs where a rate and a duration say how many start."""
    rates = {*part.swept, part.search.axis if part.search else ""}.intersection(RATE_AXES)
    arrivals = {part.load.arrival, *map(str, part.axes.get("arrival", ()))}
    name = count_setting(needs)
    if not rates or part.load.duration_s is None or name is None or "trace" in arrivals:
        return needs
    for key in (name, "requests_per_stream"):
        if key in part.swept or getattr(part.workload, key) is not None:
            raise ScenarioError(
                origin.at(("workload",)).where,
                key=f"workload.{key}",
                problem=f"load.duration and {min(rates)} already say how many start",
                expected=f"either workload.{key} or load.duration",
            )
    return tuple(need for need in needs if need != name)


def check_workload(part: ServingPart, origin: Located, needs: tuple[str, ...]) -> None:
    """What a data set can't do without, said before minutes go into starting an engine."""
    workload, needs = part.workload, _check_count(part, origin, needs)
    given = part.swept | {name for name in needs if getattr(workload, name, None) is not None}
    given |= {"requests"} if workload.requests_per_stream else set()
    for name in needs:
        if name not in given:
            also = " or in axes" if name in WORKLOAD_AXES else ""
            raise ScenarioError(
                origin.at(("workload",)).where,
                key=f"workload.{name}",
                problem="missing",
                expected=f"a value here{also}: data set {workload.dataset} needs it",
            )


def needs_of(part: ServingPart, known: ServingWords) -> tuple[str, ...]:
    """What the data set of a part needs, for later turns too if there are any."""
    name, turns = part.workload.dataset, part.workload.turns
    written = turns.get("high") if isinstance(turns, dict) else turns
    most = max((*_counts(part.values_of("turns")), written or 1))
    return (*known.datasets[name], *(known.turn_needs.get(name, ()) if most > 1 else ()))


def _counts(values: Iterable[Scalar]) -> Iterator[int]:
    """Values of an axis as counts; those that are none are refused with the axis."""
    for value in values:
        if isinstance(value, str | int):
            with suppress(UnitError):
                yield parse_count(value)


def too_few_streams(params: Params, counted: str | None) -> str | None:
    """Why a closed loop can't have its concurrency under way, or None where it can.

    Args:
        params: Of a point.
        counted: See `count_setting`.
    """
    count, concurrency = params.get(counted or ""), params.get("concurrency")
    if not isinstance(count, int) or not isinstance(concurrency, int):
        return None
    if count >= concurrency or any(name in params for name in RATE_AXES):
        return None
    return f"at most {count} are under way of concurrency {concurrency}: {counted} is {count}"


def check_streams(part: ServingPart, origin: Located, counted: str | None) -> None:
    """A search goes no higher than the data can."""
    if part.search is None or part.search.axis != "concurrency" or counted is None:
        return
    written = getattr(part.workload, counted)
    least = min((*_counts(part.values_of(counted)), written or part.search.high))
    if least < part.search.high:
        raise ScenarioError(
            origin.at(("search", "high")).where,
            key="search.high",
            problem=f"at most {least:g} are under way: workload.{counted} is {least:g}",
            expected=f"at most {least:g}, or more {counted}",
        )
