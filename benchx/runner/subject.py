"""What a group measures and who computes it: the only thing in which kernels and models differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchx.core.point import Point
from benchx.ops.base import OPERATORS, Backend, Inputs, Operator, backends_of


def _as_it_is(inputs: Inputs) -> Inputs:
    return inputs


@dataclass(frozen=True)
class Subject:
    """An operator and its backends.

    Attributes:
        operator: Inputs, truth and costs.
        backend: Finds a backend by its name.
        probe: Makes the inputs that are judged from those that are timed; what is timed itself,
            unless the truth of it can't be computed.
    """

    operator: Operator[Any]
    backend: Callable[[str], Backend[Any]]
    probe: Callable[[Any], Inputs] = _as_it_is


def kernel_subject(point: Point) -> Subject:
    """The registered operator that a point of the kernel level names."""
    return Subject(OPERATORS.get(point.subject), backends_of(point.subject).get)
