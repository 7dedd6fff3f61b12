"""Parts of kind `kernel`: one operator, several backends, a sweep over its axes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from benchx.core.errors import ScenarioError, nearest_word
from benchx.scenario.kernel_sweep import kernel_sweep
from benchx.scenario.kinds import KINDS, Kind
from benchx.scenario.located import Located
from benchx.scenario.schema import CheckSettings, Part, Value, Values, Word, Words


class KernelPart(Part):
    """What to measure of one operator.

    Attributes:
        op: Name of the operator.
        backends: Who computes it, in the order of the plan; `all` is every registered one.
        fixed: Axis -> its one value.
        axes: Axis -> its values; axes multiply, the last one runs fastest.
        zip: Groups of axes that move together instead of multiplying.
        exclude: Combinations to leave out: axis (or `backend`) -> values; an entry removes a point
            when it matches in every key that the entry names.
        check: When outputs count as right.
    """

    kind: Literal["kernel"]
    op: Annotated[Word, Field(description="the name of an operator (`op: kda_prefill`)")]
    backends: Annotated[Words, Field(description="a list of backends, or `all`")]
    fixed: dict[Word, Value] = Field(default_factory=dict)
    axes: dict[Word, Values] = Field(default_factory=dict)
    zip: tuple[Annotated[tuple[Word, ...], Field(min_length=2)], ...] = ()
    exclude: tuple[Annotated[dict[Word, Values], Field(min_length=1)], ...] = ()
    check: CheckSettings = CheckSettings()


def check_kernel_part(part: KernelPart, origin: Located) -> None:
    """Contradictions between fields: an axis given twice, zipped axes of unequal length."""
    for name in part.fixed:
        if name in part.axes:
            where = origin.at(("fixed", name)).where
            problem = f"{name} is under `axes` too"
            raise ScenarioError(where, key=f"fixed.{name}", problem=problem, expected="one of both")
    seen: set[str] = set()
    for index, group in enumerate(part.zip):
        for place, name in enumerate(group):
            _check_zipped(part, origin, (index, place), seen)
            seen.add(name)
        _check_equal_lengths(part, origin, index)


def _check_zipped(
    part: KernelPart, origin: Located, position: tuple[int, int], seen: set[str]
) -> None:
    index, place = position
    name = part.zip[index][place]
    where, key = origin.at(("zip", index, place)).where, f"zip.{index}"
    if name not in part.axes:
        raise ScenarioError(
            where,
            key=key,
            problem=f"got {name!r}",
            expected=f"one of the axes {', '.join(part.axes) or '(there are none)'}",
            nearest=nearest_word(name, part.axes),
        )
    if name in seen:
        problem = f"axis {name!r} is zipped twice"
        raise ScenarioError(where, key=key, problem=problem, expected="each axis in one group")


def _check_equal_lengths(part: KernelPart, origin: Located, index: int) -> None:
    counts = {name: len(part.axes[name]) for name in part.zip[index]}
    if len(set(counts.values())) > 1:
        raise ScenarioError(
            origin.at(("zip", index)).where,
            key=f"zip.{index}",
            problem="unequal numbers of values: "
            + ", ".join(f"{name} has {count}" for name, count in counts.items()),
            expected="axes of equal length",
        )


KINDS.add(
    "kernel",
    Kind(name="kernel", model=KernelPart, check=check_kernel_part, sweep=kernel_sweep),
)
