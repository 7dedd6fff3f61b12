"""The kinds of scenario part: one file each, registered here by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchx.core.point import Point
from benchx.core.registry import Registry
from benchx.scenario.located import Located
from benchx.scenario.schema import Part
from benchx.scenario.vocabulary import Vocabulary


@dataclass(frozen=True)
class Sweep:
    """The points of one part, counted without being built.

    Attributes:
        count: Combinations times backends, before exclusion.
        points: Builds the points in plan order, checking each combination.
    """

    count: int
    points: Callable[[], Iterator[Point]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of part.

    Attributes:
        name: The word behind `kind:`.
        model: Its fields.
        check: Raises ScenarioError for what the model alone can't see (part, where it was read).
        sweep: Its points (part, where it was read, words, index of the part in the scenario).
    """

    name: str
    model: type[Part]
    check: Callable[[Any, Located], None]
    sweep: Callable[[Any, Located, Vocabulary, int], Sweep]


KINDS: Registry[Kind] = Registry("scenario kind")
