"""A kernel part beside the words of its operator: look-ups that fail with file, line and key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from benchx.core.axes import AxisSpec, Scalar
from benchx.core.errors import ScenarioError, nearest_word
from benchx.core.units import UnitError
from benchx.scenario.located import Located, Steps, dotted, show
from benchx.scenario.values import ValueProblem, axis_value
from benchx.scenario.vocabulary import OpWords, Vocabulary

if TYPE_CHECKING:
    from benchx.scenario.kernel import KernelPart


@dataclass(frozen=True)
class PartWords:
    """A part, where it was read, and the words of its operator: complains in the right place."""

    part: KernelPart
    origin: Located
    op: OpWords

    @classmethod
    def of(cls, part: KernelPart, origin: Located, vocabulary: Vocabulary) -> Self:
        """Look the operator up; raises ScenarioError when there is none of that name."""
        if part.op not in vocabulary.ops:
            raise ScenarioError(
                origin.at(("op",)).where,
                key="op",
                problem=f"got {show(part.op)}",
                expected=f"one of {', '.join(vocabulary.ops)}",
                nearest=nearest_word(part.op, vocabulary.ops),
            )
        return cls(part, origin, vocabulary.ops[part.op])

    def fail(
        self,
        path: Steps,
        problem: str,
        expected: str | None = None,
        nearest: str | None = None,
        hint: str | None = None,
    ) -> NoReturn:
        """Raise about the value at `path`."""
        raise ScenarioError(
            self.origin.at(path).where,
            key=dotted(path),
            problem=problem,
            expected=expected,
            nearest=nearest,
            hint=hint,
        )

    def spec(self, path: Steps, name: str, *others: str) -> AxisSpec:
        """The axis called `name`, or an error at `path` that lists the operator's axes."""
        if name not in self.op.axes:
            known = (*self.op.axes, *others)
            self.fail(
                path,
                f"unknown axis {show(name)} of {self.part.op}",
                f"one of {', '.join(known)}",
                nearest_word(name, known),
            )
        return self.op.axes[name]

    def value(self, path: Steps, spec: AxisSpec, value: Scalar) -> Scalar:
        """The stored form of a value, or an error at `path`."""
        try:
            return axis_value(spec, value)
        except UnitError as error:
            near = error.nearest if isinstance(error, ValueProblem) else None
            self.fail(path, f"got {show(error.value)}", error.expected, near)
