"""One backend from its inputs to a call that is warm and right."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from benchx.core.call import PreparedCall
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import Check
from benchx.measure.correctness import Verdict, judge, poison, unsound
from benchx.measure.gpu import synchronize
from benchx.measure.memory import peak_extra_bytes
from benchx.measure.sampling import restore
from benchx.measure.warmup import WarmUp, warm_up
from benchx.ops.base import Backend
from benchx.runner.faults import Guard, poison_of
from benchx.runner.kernel_bench import Bench, Judged
from benchx.runner.session import Session

if TYPE_CHECKING:
    from benchx.core.call import Tensors

_WARM_UP_S = 5.0

PROBE_DISPATCHED_OTHERWISE = "probe_dispatched_otherwise"
"""Note of a point whose judged call ran other code than its timed one, by what the backend says."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A call that was checked and is warm.

    Attributes:
        calls: Copies to rotate over.
        peak_bytes: Most memory during one call beyond inputs and outputs; None where unknown.
        notes: What a reader of the figures must know of how they were judged.
    """

    point: Point
    calls: tuple[PreparedCall, ...]
    warm_up: WarmUp
    check: Check
    peak_bytes: int | None
    provenance: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A point that will have no figure, and why."""

    point: Point
    outcome: Outcome
    reason: str
    check: Check | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)


class _Steps:
    """Announces the steps of one point; all of them share one time limit."""

    def __init__(self, point: Point, session: Session, limit_s: float) -> None:
        self._point, self._session, self._limit_s = point, session, limit_s
        self._deadline_s = time.monotonic() + limit_s

    def begin(self, name: str) -> None:
        left_s = self._deadline_s - time.monotonic()
        self._session.phase(name, (self._point,), max(left_s, 0.0), self._limit_s)


def set_up(point: Point, bench: Bench, session: Session) -> Ready | Failed:
    """Prepare, warm up, check. Compiling happens here, before anything is timed.

    The judged call comes after the warm-up, so it also shows whether a call still works when it
    has been made before and whether `reset` restores what it should.
    """
    steps = _Steps(point, session, bench.settings.setup_time_limit_s)
    backend = bench.subject.backend(point.backend)
    with Guard() as guard:
        steps.begin("prepare")
        calls = tuple(backend.prepare(bench.inputs.clone()) for _ in range(bench.copies))
        steps.begin("first calls")
        limit_s = min(_WARM_UP_S, bench.settings.max_time_s)
        timed = _Keeping(calls[0], keeps=bench.judged[0].inputs is not bench.inputs)
        warm = warm_up(timed.call, bench.device, max_time_s=limit_s)
        steps.begin("check")
        verdict, provenance, notes = _judgement(backend, timed, bench)
        if verdict.reason is None:
            steps.begin("memory")
            peak_bytes = warm.peak_bytes if warm.is_long else _peak_bytes(calls[0], bench)
    if guard.fault is not None:
        session.poisoned = poison_of(bench.device)
        return Failed(point=point, outcome=guard.fault.outcome, reason=guard.fault.reason)
    if verdict.reason is not None or verdict.check is None:
        return Failed(
            point=point,
            outcome=Outcome.WRONG,
            reason=verdict.reason or "nothing could be compared with the reference",
            check=verdict.check,
            provenance=provenance,
        )
    return Ready(
        point=point,
        calls=calls,
        warm_up=warm,
        check=verdict.check,
        peak_bytes=peak_bytes,
        provenance=provenance,
        notes=notes,
    )


class _Keeping:
    """A call that keeps the outputs of its last run, if a probe will be judged instead of it.

    Only then: what is kept takes memory, and a call that is judged is made once more for that.
    """

    def __init__(self, call: PreparedCall, *, keeps: bool) -> None:
        self._call, self.keeps = call, keeps
        self.call = replace(call, run=self._run) if keeps else call
        self._outputs: object = None

    def _run(self) -> Tensors:
        self._outputs = None
        outputs = self._call.run()
        self._outputs = outputs
        return outputs

    def problem(self, bench: Bench) -> str | None:
        """Why the last run can't be right whatever its truth is, or None; lets its outputs go."""
        outputs, self._outputs = self._outputs, None
        left = {} if self._call.left is None else self._call.left()
        problem = unsound(outputs, bench.subject.operator.output_specs(bench.inputs), left)
        return None if problem is None else f"the timed call: {problem}"


def _judgement(
    backend: Backend[Any], timed: _Keeping, bench: Bench
) -> tuple[Verdict, Mapping[str, Any], tuple[str, ...]]:
    """What is wrong, what ran, and the notes of it.

    A probe that is right says nothing of a timed call that computes no numbers: both are looked
    at. They may also have run different code, since packages choose by shape.
    """
    if not timed.keeps:
        verdict, second = _sum_up(_verdicts(backend, timed.call, bench))
        return verdict, {**backend.provenance(), **second}, ()
    problem, ran = timed.problem(bench), dict(backend.provenance())
    if problem is not None:
        return Verdict(None, problem), ran, ()
    verdict, second = _sum_up(_verdicts(backend, timed.call, bench))
    judged = dict(backend.provenance())
    if judged == ran:
        return verdict, {**ran, **second}, ()
    return verdict, {**ran, **second, "probe": judged}, (PROBE_DISPATCHED_OTHERWISE,)


def _verdicts(backend: Backend[Any], timed: PreparedCall, bench: Bench) -> Iterator[Verdict]:
    """First that of the timed call, or of the probe that stands for it."""
    for judged in bench.judged:
        is_timed = judged.inputs is bench.inputs
        yield _check(timed if is_timed else backend.prepare(judged.inputs.clone()), judged, bench)


def _sum_up(verdicts: Iterator[Verdict]) -> tuple[Verdict, Mapping[str, Any]]:
    """The first one unless a later one is wrong, and what the record says of the later one."""
    first = next(verdicts)
    second = next(verdicts, None) if first.reason is None else None
    if second is None:
        return first, {}
    if second.reason is not None:
        return replace(second, reason=f"on the second, harder inputs: {second.reason}"), {}
    return first, {"second_rms_ratio": dict(second.check.rms_ratio) if second.check else {}}


def _check(call: PreparedCall, judged: Judged, bench: Bench) -> Verdict:
    restore([call], None)
    poison(bench.specs, bench.device)
    outputs = call.run()
    synchronize(bench.device)
    return judge(outputs, bench.specs, judged.reference, judged.bound)


def _peak_bytes(call: PreparedCall, bench: Bench) -> int | None:
    restore([call], None)
    return peak_extra_bytes(call.run, bench.device)
