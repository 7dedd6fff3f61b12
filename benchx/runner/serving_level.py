"""Serving level: one start of an engine serves all points that share its settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.architectures import load_architecture
from benchx.core.device import Device
from benchx.core.errors import BenchxError, StoreError, UsageError
from benchx.core.outcome import Outcome, Unavailable
from benchx.core.point import Point
from benchx.runner.faults import Guard
from benchx.runner.kernel_bench import release_memory
from benchx.runner.serving_point import ServingPoint
from benchx.runner.serving_search import SearchedPoint
from benchx.runner.serving_settings import engine_settings, settings_of
from benchx.runner.session import Session, now
from benchx.runner.spec import Group, Settings
from benchx.scenario.serving import engine_key
from benchx.scenario.serving_axes import ENGINE_AXES
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.engines.process import EngineFailed
from benchx.serving.engines.session import RunningEngine, running, settings_from
from benchx.serving.workloads.prompter import check_tokenizer
from benchx.store.spending import Ledger

if TYPE_CHECKING:
    from benchx.scenario import ServingPart

_START_MARGIN_S = 300.0
"""Building a model on the spot and stopping the engine come on top of its readiness limit."""


class ServingLevel:
    """See `Level`."""

    def __init__(self) -> None:
        self._ledgers: dict[str | None, Ledger] = {}

    def settings(self, part: ServingPart) -> dict[str, Any]:
        """See `Level.settings`; what no start of the engine could do with is said before any runs.

        Raises:
            UsageError: Its architecture can't be read, or the engine can make no command line or
                no address of the settings.
        """
        if part.engine.architecture is not None:
            try:
                load_architecture(part.engine.architecture)
            except BenchxError as error:
                told = f"engine.architecture: {error.message}"
                raise UsageError(told, hint=error.hint) from error
        settings = settings_of(part)
        _check_start(part, settings)
        return settings

    def groups(self, points: Sequence[Point]) -> tuple[Group, ...]:
        """Points that one start of the engine serves form a group."""
        by_start: dict[tuple[object, ...], list[Point]] = {}
        for point in points:
            by_start.setdefault(engine_key(point), []).append(point)
        return tuple(Group(tuple(members)) for members in by_start.values())

    def unavailable(self, point: Point, settings: Settings, device: Device) -> Unavailable | None:
        """What the engine says."""
        return ENGINES.get(point.backend).missing(engine_settings(settings, point))

    def most_seconds(self, settings: Settings) -> float:
        """The time of the load where it is limited, else that after which a point hangs."""
        load = settings["load"]
        return float(load.get("duration_s") or load["point_limit_s"])

    def measure(self, group: Group, session: Session) -> None:
        """See `Level.measure`."""
        settings = session.settings(group.part)
        why = self.unavailable(group.points[0], settings, session.device)
        if why is not None:
            for point in group.points:
                session.record(point, why.outcome, started_at=now(), reason=str(why))
            return
        folder = session.spec.folder
        if folder not in self._ledgers:
            self._ledgers[folder] = Ledger(None if folder is None else Path(folder))
        _EngineRun(group, settings, session, self._ledgers[folder]).measure()


def _check_start(part: ServingPart, settings: Settings) -> None:
    """Have the engine make its command line and address, swept settings at their first value.

    Raises:
        UsageError: It can make none, or `engine.tokenizer` can't be read.
    """
    values = {name: one[0] for name, one in part.axes.items()} | part.fixed
    swept = {name: value for name, value in values.items() if name in ENGINE_AXES}
    engine, asked = ENGINES.get(part.engine.name), settings_from({**settings["engine"], **swept})
    if engine.starts:
        engine.launch(asked, port=1)
    endpoint = engine.endpoint(asked, port=1)
    check_tokenizer(asked, engine.capabilities(asked), endpoint.api)


def _check_file(settings: Settings) -> None:
    """Raise UsageError when the data are not there, before minutes go into starting an engine."""
    path = settings["workload"].get("path")
    if path is not None and not Path(path).is_file():
        raise UsageError(
            f"workload.path: there is no file {path}; expected one, looked for from the folder in "
            "which benchx is run"
        )


class _EngineRun:
    """One start of an engine and the points that it serves."""

    def __init__(self, group: Group, settings: Settings, session: Session, ledger: Ledger) -> None:
        self._group, self._settings, self._session = group, settings, session
        self._ledger = ledger
        self._started_at = now()

    def measure(self) -> None:
        """Start, measure every point, stop; what fails is recorded for the points that are left."""
        release_memory(self._session.device)  # the engine may need what torch keeps for later
        first = self._group.points[0]
        limit_s = self._settings["engine"]["ready_timeout_s"] + _START_MARGIN_S
        self._session.phase("starting the engine", self._group.points, limit_s)
        with Guard() as guard:
            try:
                _check_file(self._settings)
                settings = engine_settings(self._settings, first)
                with running(ENGINES.get(first.backend), settings, log=self._log()) as engine:
                    charged_usd = engine.readiness.charged_usd
                    self._ledger.add(self._group.part, charged_usd, "trial of the engine")
                    self._points(engine)
            except EngineFailed as error:
                self._fail(error.outcome, str(error))
            except BenchxError as error:
                self._fail(Outcome.CRASHED, str(error))
        if guard.fault is not None:
            self._fail(guard.fault.outcome, guard.fault.reason)

    def _points(self, engine: RunningEngine) -> None:
        for point in self._group.points:
            self._started_at = now()
            budget_usd = self._budget_usd()
            if budget_usd is not None and budget_usd <= 0:
                reason = "the spending limit was reached before this point"
                self._session.record(
                    point, Outcome.SKIPPED, started_at=self._started_at, reason=reason
                )
                continue
            self._session.phase("serving", (point,), self._limit_s())
            self._point(point, engine)

    def _limit_s(self) -> float:
        """Seconds after which a point hangs; a search has them for each of its loads."""
        tries = self._settings.get("search", {}).get("tries", 1)
        return float(self._settings["load"]["point_limit_s"] * tries)

    def _budget_usd(self) -> float | None:
        """What may still be charged; None: no limit."""
        limit: float | None = self._settings["load"].get("spend_limit_usd")
        return None if limit is None else limit - self._ledger.spent_usd(self._group.part)

    def _point(self, point: Point, engine: RunningEngine) -> None:
        measured = SearchedPoint if "search" in self._settings else ServingPoint
        serving = measured(
            point=point,
            settings=self._settings,
            session=self._session,
            engine=engine,
            ledger=self._ledger,
        )
        try:
            result = serving.measure()
        except (EngineFailed, StoreError):
            raise
        except BenchxError as error:  # what is wrong with one point need not be with the next
            engine.fail_if_gone()
            reason = str(error)
            self._session.record(point, Outcome.CRASHED, started_at=self._started_at, reason=reason)
            return
        self._session.record(
            point,
            result.outcome,
            started_at=self._started_at,
            reason=result.reason,
            details=result.details,
        )

    def _fail(self, outcome: Outcome, reason: str) -> None:
        for point in self._group.points:
            if point.point_id not in self._session.recorded:
                self._session.record(point, outcome, started_at=self._started_at, reason=reason)

    def _log(self) -> Path:
        """What the engine prints; beside the worker's own log."""
        spec = self._session.spec
        folder = Path(spec.folder) / "logs" if spec.folder else Path()
        name = f"engine-{self._group.points[0].point_id}-{spec.launch}-{spec.worker}.log"
        return folder / name
