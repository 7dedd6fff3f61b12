"""`expand`: the points of a scenario, in plan order."""

from __future__ import annotations

import json
from collections.abc import Iterable

from benchx.core.columns import axis_problem
from benchx.core.errors import ScenarioError, nearest_word
from benchx.core.point import Point
from benchx.scenario.kinds import KINDS, Sweep
from benchx.scenario.loader import Scenario
from benchx.scenario.located import show
from benchx.scenario.schema import AUTO
from benchx.scenario.vocabulary import Vocabulary

MAX_POINTS = 100_000
"""At one second each and three launches, more than three days."""

_SAYS_NOT_HOW = frozenset(
    {"schema", "name", "title", "cost", "backends", "fixed", "axes", "zip", "exclude"}
)
"""Keys of a part without effect on how one of its points is measured; a point bears its own axes
and backend."""


def expand(scenario: Scenario, vocabulary: Vocabulary) -> tuple[Point, ...]:
    """Every point, parts in order; points that differ in the backend only are neighbours.

    The size of the sweep is computed before any point is built.

    Raises:
        ScenarioError: For words that the vocabulary does not have, values that an axis can't take,
            combinations that make no sense, points that are there twice, and too many points.
    """
    sweeps = [
        KINDS.get(part.kind).sweep(part, origin, vocabulary, index)
        for index, (part, origin) in enumerate(zip(scenario.parts, scenario.origins, strict=True))
    ]
    _check_size(scenario, sweeps)
    _check_hardware(scenario, vocabulary.hardware)
    points = tuple(point for sweep in sweeps for point in sweep.points())
    _check_axis_names(scenario, points)
    if len(scenario.parts) > 1:
        _check_parts_differ(scenario, points)
    return points


def _check_hardware(scenario: Scenario, known: tuple[str, ...]) -> None:
    """Priced hardware, before anything is measured for a report that can't find its price."""
    for part, origin in zip(scenario.parts, scenario.origins, strict=True):
        name = part.cost.hardware if part.cost else AUTO
        if known and name not in (AUTO, *known):
            raise ScenarioError(
                origin.at(("cost", "hardware")).where,
                key="cost.hardware",
                problem=f"got {show(name)}",
                expected=f"{AUTO} or one of {', '.join(known)}",
                nearest=nearest_word(name, known),
                hint="benchx list hardware",
            )


def _check_size(scenario: Scenario, sweeps: Iterable[Sweep]) -> None:
    total = 0
    for sweep, origin in zip(sweeps, scenario.origins, strict=True):
        total += sweep.count
        if total > MAX_POINTS:
            raise ScenarioError(
                origin.at(("axes",)).where,
                key="axes",
                problem=f"the sweep has {total:,} points",
                expected=f"at most {MAX_POINTS:,}",
                hint="split it, or zip axes that move together",
            )


def _check_axis_names(scenario: Scenario, points: Iterable[Point]) -> None:
    """Axes of operators, engines and kinds of part alike: each becomes a column of the rows."""
    parts = {(name, point.part) for point in points for name in point.params}
    for name, part in sorted(parts):
        problem = axis_problem(name)
        if problem is not None:
            where = scenario.origins[part].at(("axes", name)).where
            raise ScenarioError(where, key=f"axes.{name}", problem=problem, expected="another name")


def _check_parts_differ(scenario: Scenario, points: Iterable[Point]) -> None:
    """Two parts of a suite may share a point only if they measure it differently.

    Whatever a part says counts (model, engine, workload, limits, strictness), also what a kind of
    part by somebody else says; only what names it, prices it or spans its sweep does not.
    """
    settings = [
        json.dumps(
            {key: value for key, value in part.to_json().items() if key not in _SAYS_NOT_HOW},
            sort_keys=True,
        )
        for part in scenario.parts
    ]
    first: dict[tuple[object, ...], int] = {}
    for point in points:
        identity = (point.kind, point.subject, point.backend, tuple(point.params.items()))
        part = first.setdefault((*identity, settings[point.part]), point.part)
        if part != point.part:
            raise ScenarioError(
                scenario.origins[point.part].where,
                key=f"parts.{point.part}",
                problem=f"{point.label()} is in part {part} too, measured the same way",
                expected="different points or different settings",
            )
