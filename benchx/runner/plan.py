"""From a scenario to the points, groups and launches of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchx.core.device import Device
from benchx.core.errors import ScenarioError, UsageError
from benchx.core.point import Point
from benchx.ops.base import Unavailable
from benchx.runner.catalog import LEVELS
from benchx.runner.spec import Group, Settings
from benchx.scenario import Scenario, Vocabulary, expand
from benchx.scenario.located import Located
from benchx.scenario.schema import Part
from benchx.store import PlanEntry


@dataclass(frozen=True, kw_only=True)
class PlannedPoint:
    """A point before it runs.

    Attributes:
        point: The point.
        unavailable: Why it will not run on the device that was asked about; None: it will.
        launches: In how many launches it is measured.
        est_seconds: Most seconds that timing it takes over all launches. Set-up (compiling,
            checking, warming up) comes on top and can't be foretold. 0 for one that will not run.
    """

    point: Point
    unavailable: Unavailable | None
    launches: int
    est_seconds: float


@dataclass(frozen=True)
class Plan:
    """Everything a run will do.

    Attributes:
        entries: Points with their number of launches, in plan order.
        settings: Index of a scenario part -> its settings, as a worker gets them.
        seeds: Seed of each part.
    """

    entries: tuple[PlanEntry, ...]
    settings: Mapping[int, Settings]
    seeds: tuple[int, ...]

    @property
    def launches(self) -> int:
        """Most launches of any point."""
        return max((entry.launches for entry in self.entries), default=0)

    def points_of(self, launch: int) -> tuple[Point, ...]:
        """Points that are measured in a launch."""
        return tuple(entry.point for entry in self.entries if launch < entry.launches)


def make_plan(scenario: Scenario, vocabulary: Vocabulary) -> Plan:
    """Expand a scenario; raises ScenarioError for what can't be measured as it says."""
    points = expand(scenario, vocabulary)
    launches = [part.measure.launches for part in scenario.parts]
    return Plan(
        entries=tuple(PlanEntry(point, launches[point.part]) for point in points),
        settings={
            index: _settings(part, origin)
            for index, (part, origin) in enumerate(
                zip(scenario.parts, scenario.origins, strict=True)
            )
        },
        seeds=tuple(part.measure.seed for part in scenario.parts),
    )


def _settings(part: Part, origin: Located) -> Settings:
    """How a part is measured; a level begins its complaint with the key that it is about."""
    try:
        return LEVELS.get(part.kind).settings(part)
    except UsageError as error:
        where = origin.at(error.message.partition(": ")[0].split(".")).where
        raise ScenarioError(where, problem=error.message, hint=error.hint) from error


def group_points(points: Iterable[Point]) -> tuple[Group, ...]:
    """Points in groups as their level measures them; neighbours of one level are asked together."""
    groups: list[Group] = []
    run: list[Point] = []
    for point in points:
        if run and (run[-1].kind, run[-1].part) != (point.kind, point.part):
            groups += LEVELS.get(run[-1].kind).groups(run)
            run = []
        run.append(point)
    if run:
        groups += LEVELS.get(run[-1].kind).groups(run)
    return tuple(groups)


def describe(scenario: Scenario, vocabulary: Vocabulary, device: Device) -> Sequence[PlannedPoint]:
    """What a run on `device` would do, without running anything."""
    plan = make_plan(scenario, vocabulary)
    return [_planned(entry, plan.settings[entry.point.part], device) for entry in plan.entries]


def _planned(entry: PlanEntry, settings: Settings, device: Device) -> PlannedPoint:
    level = LEVELS.get(entry.point.kind)
    unavailable = level.unavailable(entry.point, settings, device)
    seconds = 0.0 if unavailable is not None else entry.launches * level.most_seconds(settings)
    return PlannedPoint(
        point=entry.point,
        unavailable=unavailable,
        launches=entry.launches,
        est_seconds=seconds,
    )
