"""What the points of one group share: inputs, truth, timer and cache."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchx.core.call import OutputSpec, Reference
from benchx.core.device import Device
from benchx.core.point import Point
from benchx.core.record import Work
from benchx.measure.cache import rotation_copies
from benchx.measure.timers import Timer
from benchx.ops.base import Inputs, JudgedInTurns, JudgedTwice, Operator
from benchx.runner.kernel_settings import KernelSettings
from benchx.runner.place import Place, place_of
from benchx.runner.session import Session
from benchx.runner.subject import Subject

_COPIES_MEMORY_SHARE = 0.25
"""Share of the device's memory that the rotation copies of a whole group may take."""

SECOND_ALLOWANCE = 10.0
"""Second inputs may be off by so many times the bound. They are harder than a model's, and rounding
adds up over what is remembered; they show what is lost or mixed up, which is off by half or more.
"""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Inputs, their fp64 truth, and the largest error ratio that passes."""

    inputs: Inputs
    reference: Reference
    bound: float


@dataclass(kw_only=True)
class Bench:
    """A group being measured.

    Attributes:
        subject: What is measured, and who computes it.
        inputs: Pristine: every backend gets a clone, so that one that writes to its inputs
            spoils nobody else's.
        judged: What is judged: `inputs` themselves, or smaller ones where their truth is too much.
            Then what else is (`JudgedTwice`), in the first launch. Dropped before timing, to give
            its memory back.
        copies: Prepared calls per backend that the timer rotates over.
        place: Where all of it happens.
    """

    settings: KernelSettings
    place: Place
    work: Work
    subject: Subject
    inputs: Inputs
    specs: Mapping[str, OutputSpec]
    judged: tuple[Judged, ...]
    timer: Timer
    copies: int

    @property
    def device(self) -> Device:
        """Where the inputs live."""
        return self.place.device


def make_bench(
    points: Sequence[Point], subject: Subject, settings: KernelSettings, session: Session
) -> Bench:
    """Inputs, reference and timer for points that differ in the backend only.

    Equal seeds in every launch: the launches measure the same inputs. The reference is computed
    in each, since each is a new process and none is trusted unchecked.
    """
    import torch

    limit_s = settings.setup_time_limit_s
    operator, params = subject.operator, points[0].params
    place = place_of(operator, params, session.device)
    device = place.device
    session.phase("making inputs", points, limit_s)
    target = torch.device(device.torch_device)
    inputs = operator.make_inputs(params, seed=settings.seed, device=target)
    session.phase("computing the reference", points, limit_s)
    judged = tuple(_judged(subject, inputs, settings, session.spec.launch))
    cache = session.cold_cache(device) if settings.cache == "cold" else None
    timer = place.timer(settings.timer, cache, copy_bytes=inputs.nbytes())
    return Bench(
        settings=settings,
        place=place,
        work=operator.work(params),
        subject=subject,
        inputs=inputs,
        specs=operator.output_specs(judged[0].inputs),
        judged=judged,
        timer=timer,
        copies=_copies(timer, inputs, device, len(points)),
    )


def _judged(
    subject: Subject, inputs: Inputs, settings: KernelSettings, launch: int
) -> Iterator[Judged]:
    operator, probe = subject.operator, subject.probe(inputs)
    turn = settings.seed + launch
    bound = settings.max_rms_ratio or operator.max_rms_ratio
    yield Judged(inputs=probe, reference=_truth(operator, probe, turn), bound=bound)
    if launch > 0 or not isinstance(operator, JudgedTwice):
        return
    second = operator.second_inputs(probe)
    if second is not None:
        bound *= SECOND_ALLOWANCE
        yield Judged(inputs=second, reference=_truth(operator, second, turn), bound=bound)


def _truth(operator: Operator[Any], inputs: Inputs, turn: int) -> Reference:
    """Launches look at different heads where all of them would take too long."""
    if isinstance(operator, JudgedInTurns):
        return operator.reference_in_turn(inputs, turn)
    return operator.reference(inputs)


def _copies(timer: Timer, inputs: Inputs, device: Device, backends: int) -> int:
    """Only inside a graph must calls rotate; elsewhere the cache is flushed between them."""
    if timer.name != "graph":
        return 1
    share = _COPIES_MEMORY_SHARE / backends
    return rotation_copies(inputs.nbytes(), device, memory_share=share)


def release_memory(device: Device) -> None:
    """Give back what nothing refers to any more, so that the next group finds all of it."""
    gc.collect()
    if device.is_gpu:
        import torch

        torch.cuda.empty_cache()
