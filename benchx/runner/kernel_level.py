"""Kernel level: backends of one operator on equal inputs, checked, then timed in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.measure.interleave import Measured
from benchx.measure.telemetry import telemetry_notes
from benchx.ops.base import Unavailable
from benchx.runner.faults import Guard, poison_of
from benchx.runner.kernel_bench import Bench, make_bench, release_memory
from benchx.runner.kernel_settings import KernelSettings
from benchx.runner.kernel_setup import Failed, Ready, set_up
from benchx.runner.kernel_timing import Turns, time_in_turns
from benchx.runner.kernel_values import above_roofline, kernel_values, roofline_notes, timing_of
from benchx.runner.place import place_of
from benchx.runner.session import Session, now
from benchx.runner.spec import Group, Settings
from benchx.runner.subject import Subject, kernel_subject

if TYPE_CHECKING:
    from benchx.scenario import KernelPart

THROTTLED_SHARE = 0.5
"""Of a point's readings: from there on the median sample may be one of a throttled device, so the
point is `throttled` and has no figure; below, it has its figure and the note `throttled`."""


class KernelLevel:
    """See `Level`; what a group measures comes from `subject_of`."""

    def subject_of(self, point: Point) -> Subject:
        """The operator of a point and its backends."""
        return kernel_subject(point)

    def notes_of(self, _point: Point) -> tuple[str, ...]:
        """What a reader of a point's figures must know, whatever came of timing it."""
        return ()

    def settings(self, part: KernelPart) -> dict[str, Any]:
        """See `Level.settings`."""
        return asdict(KernelSettings.of(part))

    def groups(self, points: Sequence[Point]) -> tuple[Group, ...]:
        """Points that differ in the backend only form a group."""
        by_id: dict[str, list[Point]] = {}
        for point in points:
            by_id.setdefault(point.group_id, []).append(point)
        return tuple(Group(tuple(members)) for members in by_id.values())

    def unavailable(self, point: Point, settings: Settings, device: Device) -> Unavailable | None:
        """What the backend says first: a missing GPU or package is more than a wrong timer."""
        subject = self.subject_of(point)
        place = place_of(subject.operator, point.params, device)
        refusal = subject.backend(point.backend).unavailable(point.params, place.device)
        if refusal is not None:
            return refusal
        reason = place.problem(settings["timer"])
        return Unavailable(outcome=Outcome.SKIPPED, reason=reason) if reason is not None else None

    def most_seconds(self, settings: Settings) -> float:
        """The time limit of sampling."""
        return float(settings["max_time_s"])

    def measure(self, group: Group, session: Session) -> None:
        """See `Level.measure`.

        A point that ran out of memory while others held theirs is measured again by itself.
        """
        settings = KernelSettings(**session.settings(group.part))
        waiting = [self._available(group, settings, session)]
        while waiting and session.poisoned is None:
            points = waiting.pop(0)
            if points:
                crowded = _GroupRun(self, points, settings, session).measure()
                waiting += [[point] for point in crowded]
                if session.poisoned is None:
                    release_memory(session.device)

    def _available(self, group: Group, settings: KernelSettings, session: Session) -> list[Point]:
        started_at, kept = now(), []
        for point in group.points:
            session.phase("availability", (point,), settings.setup_time_limit_s)
            with Guard() as guard:
                why = self.unavailable(point, asdict(settings), session.device)
            if guard.fault is not None:
                fault = guard.fault
                session.record(point, fault.outcome, started_at=started_at, reason=fault.reason)
            elif why is not None:
                session.record(point, why.outcome, started_at=started_at, reason=str(why))
            else:
                kept.append(point)
        return kept


class _GroupRun:
    """One pass over points that share their inputs."""

    def __init__(
        self,
        level: KernelLevel,
        points: Sequence[Point],
        settings: KernelSettings,
        session: Session,
    ) -> None:
        self._level, self._points = level, points
        self._settings, self._session = settings, session
        self._started_at = now()

    def measure(self) -> list[Point]:
        """Set up, time, record; returns points that found no room beside the others."""
        with Guard() as guard:
            subject = self._level.subject_of(self._points[0])
            bench = make_bench(self._points, subject, self._settings, self._session)
        if guard.fault is not None:
            self._session.poisoned = poison_of(self._session.device)
            fault = guard.fault
            for point in self._points:
                self._fail(Failed(point=point, outcome=fault.outcome, reason=fault.reason))
            return []
        ready, crowded = self._set_up(bench)
        bench.judged = ()
        if ready and self._session.poisoned is None:
            turns = time_in_turns(ready, bench, self._session)
            self._record(ready, turns, bench)
        return crowded

    def _set_up(self, bench: Bench) -> tuple[list[Ready], list[Point]]:
        ready: list[Ready] = []
        crowded: list[Point] = []
        for point in self._points:
            if self._session.poisoned is not None:
                break
            result = set_up(point, bench, self._session)
            if isinstance(result, Ready):
                ready.append(result)
                continue
            if result.outcome is Outcome.OOM and ready:
                crowded.append(point)
            else:
                self._fail(result)
            if self._session.poisoned is None:
                release_memory(bench.device)
        return ready, crowded

    def _fail(self, failed: Failed) -> None:
        self._session.record(
            failed.point,
            failed.outcome,
            started_at=self._started_at,
            reason=failed.reason,
            details={"check": failed.check, "provenance": failed.provenance},
        )

    def _record(self, ready: Sequence[Ready], turns: Turns, bench: Bench) -> None:
        for failed in turns.failed:
            self._fail(failed)
        for entry in ready:
            if entry.point.point_id in turns.measured:
                self._succeed(entry, turns, bench)

    def _succeed(self, entry: Ready, turns: Turns, bench: Bench) -> None:
        telemetry = turns.telemetry[entry.point.point_id]
        if (telemetry.get("hw_throttled_share") or 0.0) >= THROTTLED_SHARE:
            self._fail(_throttled(entry, telemetry))
            return
        measured = turns.measured[entry.point.point_id]
        values = self._values(entry, measured, bench)
        details = {
            "values": values,
            "samples": measured.samples,
            "check": entry.check,
            "work": bench.work,
            "timing": timing_of(
                measured,
                timer=bench.timer.name,
                cache=self._settings.cache,
                notes=(
                    *_notes(entry, telemetry),
                    *self._roofline_notes(values, bench),
                    *bench.place.notes,
                    *self._level.notes_of(entry.point),
                ),
            ),
            "telemetry": telemetry,
            "provenance": entry.provenance,
        }
        self._session.record(entry.point, Outcome.OK, started_at=self._started_at, details=details)

    def _values(self, entry: Ready, measured: Measured, bench: Bench) -> dict[str, float]:
        """The figures; one above the roofline makes the ceilings be measured again.

        Not with a warm cache, which no copy from memory bounds. The ceilings are the device's:
        what crosses to its host, or runs there, has none here.
        """
        if not bench.place.within:
            return kernel_values(entry, measured, bench.work, {})
        values = kernel_values(entry, measured, bench.work, self._session.ceilings)
        if self._settings.cache == "cold" and above_roofline(values):
            self._session.doubt_ceilings(entry.point)
            values = kernel_values(entry, measured, bench.work, self._session.ceilings)
        return values

    def _roofline_notes(self, values: Mapping[str, float], bench: Bench) -> tuple[str, ...]:
        return roofline_notes(values, bench.work, self._session.ceilings)


def _throttled(entry: Ready, telemetry: Mapping[str, Any]) -> Failed:
    """The card protected itself most of the time: what was timed is not its speed."""
    reasons = ", ".join(telemetry.get("throttle_reasons") or ())
    share = telemetry["hw_throttled_share"]
    return Failed(
        point=entry.point,
        outcome=Outcome.THROTTLED,
        reason=f"the device throttled itself in {share:.0%} of the readings ({reasons})",
        check=entry.check,
        provenance=entry.provenance,
    )


def _notes(entry: Ready, telemetry: Mapping[str, Any]) -> tuple[str, ...]:
    found = (
        (telemetry.get("hw_throttled"), "throttled"),
        (not entry.warm_up.steady, "unsteady_warm_up"),
    )
    notes = tuple(note for holds, note in found if holds)
    return (*telemetry_notes(telemetry), *entry.notes, *notes)
