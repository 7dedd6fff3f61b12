"""The highest load that meets an objective, in as few tries as it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """Where to look.

    Attributes:
        low: Smallest load that is tried, above 0.
        high: Largest one.
        whole: Whether loads are whole numbers (a concurrency) or not (a rate).
        precision: Ratio of the lowest failing to the highest passing load, minus 1, that is near
            enough.
        tries: Most loads that are tried.
    """

    low: float
    high: float
    whole: bool
    precision: float = 0.05
    tries: int = 16


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        passing: Highest load that met the objective; None when the lowest did not.
        failing: Lowest load that did not; None when the highest did.
        tried: All loads that were judged, in the order in which they were tried.
        complete: Whether nothing was left to try; else tries ran out, or a load was not judged.
    """

    passing: float | None
    failing: float | None
    tried: tuple[float, ...]
    complete: bool


def search_highest(plan: SearchPlan, meets: Callable[[float], bool | None]) -> Found:
    """Double from the lowest load until one fails, then halve the ratio in between.

    It takes for granted that a load above one that fails fails too. A server whose figures are
    noisy near the limit may make one more or less pass; the answer is then as noisy.

    Args:
        plan: Where to look.
        meets: Whether a load meets the objective; called once for each that is tried. None ends
            the search: that can't be told.
    """
    passing: float | None = None
    failing: float | None = None
    tried: list[float] = []
    load: float | None = plan.low
    while load is not None and len(tried) < plan.tries:
        met = meets(load)
        if met is None:
            break
        tried.append(load)
        if met:
            passing = load
        else:
            failing = load
        load = _next(plan, passing, failing)
    return Found(passing, failing, tuple(tried), load is None)


def _next(plan: SearchPlan, passing: float | None, failing: float | None) -> float | None:
    """The next load to try, or None when the answer is known well enough."""
    if passing is None:
        return None
    if failing is None:
        return None if passing >= plan.high else min(2 * passing, plan.high)
    if plan.whole:
        between = (passing + failing) // 2
        near = failing - passing <= max(1.0, plan.precision * passing)
        return None if near or between == passing else between
    near = failing / passing <= 1 + plan.precision
    return None if near else float((passing * failing) ** 0.5)
