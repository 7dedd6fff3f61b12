"""From axes, zip groups and exclusions to the points of one kernel part."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from benchx.core.axes import Params, Scalar
from benchx.core.errors import ScenarioError, nearest_word
from benchx.core.point import Point
from benchx.scenario.kinds import Sweep
from benchx.scenario.located import Located, Steps, show
from benchx.scenario.part_words import PartWords
from benchx.scenario.values import axis_value
from benchx.scenario.vocabulary import Vocabulary

if TYPE_CHECKING:
    from benchx.scenario.kernel import KernelPart

ALL = "all"
"""`backends: all` means every registered backend of the operator."""

BACKEND = "backend"
"""The key of an exclusion that is no axis."""

_MOST_LISTED, _MOST_ALIKE = 12, 4
"""Up to so many backends are all named; of more, those that look most like what was written."""


@dataclass(frozen=True)
class _Factor:
    """Axes that move together, and the rows of values that they take."""

    names: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]


@dataclass(frozen=True)
class _Exclusion:
    """Leaves out a point when every name that it knows has one of its values."""

    values: Mapping[str, frozenset[Scalar]]

    def matches(self, point: Mapping[str, Scalar]) -> bool:
        """Whether the point (axes and backend) is to be left out."""
        return all(point[name] in values for name, values in self.values.items())


def kernel_sweep(part: KernelPart, origin: Located, vocabulary: Vocabulary, index: int) -> Sweep:
    """The points of a part, in plan order: axes as written (the last runs fastest), backends last.

    So points that differ in the backend only are neighbours, and can be measured in turns.

    Raises:
        ScenarioError: For unknown operators, backends, axes and values, and for values twice.
    """
    words = PartWords.of(part, origin, vocabulary)
    backends = _backends(words)
    factors = _factors(words)  # before constants: a misspelt axis is a missing one too
    constants = _constants(words)
    exclusions = [_exclusion(words, position) for position in range(len(part.exclude))]

    def points() -> Iterator[Point]:
        kept = False
        for params in _combinations(constants, factors):
            left = [
                backend
                for backend in backends
                if not any(rule.matches({**params, BACKEND: backend}) for rule in exclusions)
            ]
            if left:
                kept = True
                _check_combination(words, factors, params)
            for backend in left:
                yield Point(
                    kind="kernel", subject=part.op, backend=backend, params=params, part=index
                )
        if not kept:
            words.fail(("exclude",), "no point is left", "exclusions that leave some")

    return Sweep(prod(len(factor.rows) for factor in factors) * len(backends), points)


def _backends(words: PartWords) -> tuple[str, ...]:
    named = words.part.backends
    if named == (ALL,):
        return words.op.backends
    for position, name in enumerate(named):
        _check_backend(words, ("backends", position), name)
    _refuse_twice(words, ("backends",), (BACKEND,), [(name,) for name in named])
    return named


def _check_backend(words: PartWords, path: Steps, name: Scalar) -> None:
    known = words.op.backends
    if name in known:
        return
    expected, hint = f"one of {', '.join(known)}", None
    if len(known) > _MOST_LISTED:  # a model has one for every pair of attention backends
        alike = get_close_matches(str(name), known, n=_MOST_ALIKE, cutoff=0) or known
        expected = f"one of {len(known)} backends, such as {', '.join(alike)}"
        hint = "`benchx plan SCENARIO` with `backends: all` lists them"
    if name == ALL:
        expected += f", or {ALL} alone"
    words.fail(path, f"got {show(name)}", expected, nearest_word(str(name), known), hint)


def _constants(words: PartWords) -> dict[str, Scalar]:
    """Fixed values and defaults; raises when an axis has neither and is not swept."""
    part = words.part
    constants: dict[str, Scalar] = {}
    for name, value in part.fixed.items():
        path = ("fixed", name)
        constants[name] = words.value(path, words.spec(path, name), value)
    for name, spec in words.op.axes.items():
        if name in constants or name in part.axes:
            continue
        if spec.default is None:
            raise ScenarioError(
                words.origin.at(("axes",)).where,
                key=f"axes.{name}",
                problem=f"missing, and {part.op} has no default for it",
                expected=f"{spec.doc} (under `axes` or `fixed`)",
            )
        constants[name] = axis_value(spec, spec.default)
    return constants


def _factors(words: PartWords) -> tuple[_Factor, ...]:
    """One factor per axis or zip group, in the order in which the axes were written."""
    axes = {
        name: tuple(
            words.value(("axes", name, position), words.spec(("axes", name), name), value)
            for position, value in enumerate(values)
        )
        for name, values in words.part.axes.items()
    }
    factors: list[_Factor] = []
    for name in axes:
        group = next((group for group in words.part.zip if name in group), (name,))
        if any(name in factor.names for factor in factors):
            continue
        rows = tuple(zip(*(axes[member] for member in group), strict=True))
        _refuse_twice(words, ("axes", name), group, rows)
        factors.append(_Factor(group, rows))
    return tuple(factors)


def _refuse_twice(
    words: PartWords, path: Steps, names: Sequence[str], rows: Sequence[tuple[Scalar, ...]]
) -> None:
    """Rows that are equal would make equal points."""
    seen: set[tuple[Scalar, ...]] = set()
    for position, row in enumerate(rows):
        if row in seen:
            pairs = zip(names, row, strict=True)
            text = " ".join(f"{name}={show(value)}" for name, value in pairs)
            words.fail((*path, position), f"{text} is listed twice", "different points")
        seen.add(row)


def _exclusion(words: PartWords, position: int) -> _Exclusion:
    """One entry of `exclude`, its values in stored form."""
    stored: dict[str, frozenset[Scalar]] = {}
    for name, values in words.part.exclude[position].items():
        path = ("exclude", position, name)
        if name == BACKEND:
            for place, value in enumerate(values):
                _check_backend(words, (*path, place), value)
            stored[name] = frozenset(values)
        else:
            spec = words.spec(path, name, BACKEND)
            stored[name] = frozenset(
                words.value((*path, place), spec, value) for place, value in enumerate(values)
            )
    return _Exclusion(stored)


def _combinations(constants: Params, factors: Sequence[_Factor]) -> Iterator[dict[str, Scalar]]:
    """Every choice of one row per factor, constants added."""
    for rows in product(*(factor.rows for factor in factors)):
        params = dict(constants)
        for factor, row in zip(factors, rows, strict=True):
            params.update(zip(factor.names, row, strict=True))
        yield params


def _check_combination(words: PartWords, factors: Sequence[_Factor], params: Params) -> None:
    """Ask the operator whether the combination makes sense; raises with the axes that vary."""
    problem = words.op.problem(params)
    if problem is None:
        return
    swept = [name for factor in factors for name in factor.names]
    written = [*swept, *words.part.fixed]
    # Point at an axis that the sentence speaks of, if it was written at all.
    named = next((name for name in written if re.search(rf"\b{re.escape(name)}\b", problem)), None)
    path = (
        ("fixed", named) if named in words.part.fixed else ("axes", named) if named else ("axes",)
    )
    text = " ".join(f"{name}={show(params[name])}" for name in swept)
    words.fail(
        path, f"{text}: {problem}" if text else problem, "other values, or an `exclude` entry"
    )
