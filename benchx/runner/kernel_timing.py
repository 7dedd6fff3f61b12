"""Timing the calls of a group in turns, watched by telemetry and a control kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchx.core.call import PreparedCall
from benchx.measure.interleave import Measured, measure_interleaved
from benchx.measure.stopping import StoppingRule
from benchx.measure.telemetry import Telemetry
from benchx.measure.timers import SampleBatch, Timer
from benchx.runner.faults import Guard, poison_of
from benchx.runner.kernel_bench import Bench
from benchx.runner.kernel_setup import Failed, Ready
from benchx.runner.session import Session

_MAX_BATCH = 20
_BATCH_MARGIN_S = 60.0


@dataclass(kw_only=True)
class Turns:
    """What came of timing a group.

    Attributes:
        measured: Point id -> samples.
        failed: Points that raised while they were timed.
        telemetry: Point id -> clocks, power, temperature and throttling while it ran
            (`Telemetry.of`), and what the control kernel showed of this launch until then.
    """

    measured: dict[str, Measured] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)
    telemetry: dict[str, dict[str, Any]] = field(default_factory=dict)


class AnnouncingTimer:
    """A timer that says whose batch begins, so that a hang or crash has a name.

    The announcement is outside of what is timed.

    Attributes:
        current: The point whose batch began last.
    """

    def __init__(
        self, timer: Timer, entries: Mapping[int, Ready], announce: Callable[[Ready], None]
    ) -> None:
        self._timer, self._entries, self._announce = timer, entries, announce
        self.current: Ready | None = None

    @property
    def name(self) -> str:
        """See `Timer`."""
        return self._timer.name

    @property
    def synchronous(self) -> bool:
        """See `Timer`."""
        return self._timer.synchronous

    def sample(
        self, calls: Sequence[PreparedCall], count: int, *, opened: bool = False
    ) -> SampleBatch:
        """See `Timer.sample`."""
        self.current = self._entries[id(calls)]
        self._announce(self.current)
        return self._timer.sample(calls, count, opened=opened)

    def call_time_ms(self, call: PreparedCall, count: int) -> tuple[float, ...]:
        """See `Timer.call_time_ms`."""
        return self._timer.call_time_ms(call, count)


def time_in_turns(ready: Sequence[Ready], bench: Bench, session: Session) -> Turns:
    """Time all of them; one that raises is taken out and the others start again without it."""
    turns = Turns()
    _look(ready, bench, session)
    telemetry = Telemetry(bench.device)
    telemetry.start()
    try:
        for entries in _rounds(ready, bench):
            _time_until_done(list(entries), bench, session, turns, telemetry.mark)
    finally:
        telemetry.stop()
        names = [entry.point.point_id for entry in ready]
        turns.telemetry |= {name: telemetry.of(name) for name in names}
    closing = session.ends_with(ready[0].point)
    if session.poisoned is None and _look(ready, bench, session, closing=closing):
        drift = session.drift.columns()
        turns.telemetry = {name: found | drift for name, found in turns.telemetry.items()}
    return turns


def _look(ready: Sequence[Ready], bench: Bench, session: Session, *, closing: bool = False) -> bool:
    """Time the control kernel, unless it runs on a device that has no part in these points."""
    if bench.place.on_host:
        return False
    points = [entry.point for entry in ready]
    session.phase("control kernel", points, bench.settings.setup_time_limit_s)
    session.drift.look(closing=closing)
    return True


def _rounds(ready: Sequence[Ready], bench: Bench) -> list[Sequence[Ready]]:
    if bench.settings.order == "sequential":
        return [[entry] for entry in ready]
    return [ready] if ready else []


def _time_until_done(
    waiting: list[Ready],
    bench: Bench,
    session: Session,
    turns: Turns,
    mark: Callable[[str], None],
) -> None:
    def begins(entry: Ready) -> None:
        session.phase("timing", (entry.point,), _batch_limit_s(entry, bench))
        mark(entry.point.point_id)

    while waiting and session.poisoned is None:
        entries = {id(entry.calls): entry for entry in waiting}
        timer = AnnouncingTimer(bench.timer, entries, begins)
        with Guard() as guard:
            turns.measured |= measure_interleaved(
                {entry.point.point_id: entry.calls for entry in waiting},
                timer=timer,
                rule=_rule(bench),
                seed=bench.settings.seed + session.spec.launch,
                long_calls_ms={
                    entry.point.point_id: entry.warm_up.steady_call_s * 1e3
                    for entry in waiting
                    if entry.warm_up.is_long
                },
            )
        if guard.fault is None:
            return
        culprit = timer.current
        assert culprit is not None
        session.poisoned = poison_of(bench.device)
        turns.failed.append(
            Failed(
                point=culprit.point,
                outcome=guard.fault.outcome,
                reason=guard.fault.reason,
                check=culprit.check,
                provenance=culprit.provenance,
            )
        )
        waiting = [entry for entry in waiting if entry is not culprit]


def _rule(bench: Bench) -> StoppingRule:
    settings = bench.settings
    return StoppingRule(
        target_error=settings.target_error,
        max_time_s=settings.max_time_s,
        min_samples=settings.min_samples,
        max_samples=settings.max_samples,
    )


def _batch_limit_s(entry: Ready, bench: Bench) -> float:
    """Far more than a batch takes: a batch has at most 20 calls and ends by `max_time` or so."""
    settings = bench.settings
    margin_s = min(_BATCH_MARGIN_S, settings.setup_time_limit_s)
    return settings.max_time_s + _MAX_BATCH * entry.warm_up.steady_call_s + margin_s
