"""Parts of kind `model`: prefill or decode of one architecture, a sweep over its axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from benchx.core.errors import BenchxError, ScenarioError
from benchx.core.point import Point
from benchx.scenario.kernel import KernelPart, check_kernel_part
from benchx.scenario.kernel_sweep import kernel_sweep
from benchx.scenario.kinds import KINDS, Kind, Sweep
from benchx.scenario.located import Located
from benchx.scenario.schema import CheckSettings, Part, Value, Values, Word, Words
from benchx.scenario.vocabulary import OpWords, Vocabulary


class ModelPart(Part):
    """What to measure of one model.

    Attributes:
        architecture: A shipped descriptor, or the path of a `.yaml` or `config.json`.
        phase: `prefill`: a prompt from nothing or behind a cached prefix; `decode`: one step.
        backends: Who computes its attention, as in `triton+sdpa` (KDA's backend, MLA's backend).
        fixed: Axis -> its one value.
        axes: Axis -> its values; axes multiply, the last one runs fastest.
        zip: Groups of axes that move together instead of multiplying.
        exclude: Combinations to leave out, as in a kernel part.
        check: When outputs count as right.
    """

    kind: Literal["model"]
    architecture: Annotated[
        Word, Field(description="the name of an architecture (`architecture: kimi-k3`)")
    ]
    phase: Annotated[Literal["prefill", "decode"], Field(description="prefill or decode")]
    backends: Annotated[Words, Field(description="a list of backends, or `all`")]
    fixed: dict[Word, Value] = Field(default_factory=dict)
    axes: dict[Word, Values] = Field(default_factory=dict)
    zip: tuple[Annotated[tuple[Word, ...], Field(min_length=2)], ...] = ()
    exclude: tuple[Annotated[dict[Word, Values], Field(min_length=1)], ...] = ()
    check: CheckSettings = CheckSettings()

    def as_kernel(self) -> KernelPart:
        """Its sweep in the form of a kernel part, the architecture in the operator's place."""
        return KernelPart.model_construct(
            name=self.name,
            title=self.title,
            kind="kernel",
            op=self.architecture,
            backends=self.backends,
            fixed=self.fixed,
            axes=self.axes,
            zip=self.zip,
            exclude=self.exclude,
            measure=self.measure,
            check=self.check,
        )


def check_model_part(part: ModelPart, origin: Located) -> None:
    """Contradictions between fields, as in a kernel part."""
    check_kernel_part(part.as_kernel(), origin)


def model_sweep(part: ModelPart, origin: Located, vocabulary: Vocabulary, index: int) -> Sweep:
    """The points of a part, in plan order; `phase` is one of their parameters.

    Raises:
        ScenarioError: For architectures that can't be read, unknown backends, axes and values,
            and contexts beyond what the model is made for.
    """
    words = _words(part, origin, vocabulary)
    swept = kernel_sweep(
        part.as_kernel(), origin, Vocabulary(ops={part.architecture: words}), index
    )

    def points() -> Iterator[Point]:
        for point in swept.points():
            yield Point(
                kind="model",
                subject=point.subject,
                backend=point.backend,
                params={**point.params, "phase": part.phase},
                part=index,
            )

    return Sweep(swept.count, points)


def _words(part: ModelPart, origin: Located, vocabulary: Vocabulary) -> OpWords:
    where = origin.at(("architecture",)).where
    if vocabulary.models is None:
        raise ScenarioError(where, key="architecture", problem="no model is known here")
    try:
        return vocabulary.models.words(part.architecture, part.phase)
    except BenchxError as error:
        raise ScenarioError(
            where, key="architecture", problem=error.message, hint=error.hint
        ) from error


KINDS.add("model", Kind(name="model", model=ModelPart, check=check_model_part, sweep=model_sweep))
