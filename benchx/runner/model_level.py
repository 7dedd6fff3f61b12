"""Model level: a stack of layers in the place of an operator; everything else as for kernels."""

from __future__ import annotations

from benchx.architectures import load_architecture
from benchx.core.point import Point
from benchx.ops.model_backend import model_backend
from benchx.ops.model_operator import ModelOperator
from benchx.runner.kernel_level import KernelLevel
from benchx.runner.subject import Subject


class ModelLevel(KernelLevel):
    """See `Level`.

    A point is judged on a short prompt with the weights and backends that are timed
    (`ModelOperator.probe`): fp64 through the whole of a long one would take hours.
    """

    def subject_of(self, point: Point) -> Subject:
        """The phase of the architecture that a point names."""
        phase = str(point.params["phase"])
        operator, arch = ModelOperator(point.subject, phase), load_architecture(point.subject)
        return Subject(
            operator,
            lambda name: model_backend(name, arch, point.subject, phase),
            operator.probe,
        )

    def notes_of(self, point: Point) -> tuple[str, ...]:
        """What keeps a figure from being the model's: a slice, a reduction, another pattern."""
        layers = load_architecture(point.subject).layers
        kept, shrink = int(point.params["layers"]) or layers, int(point.params["shrink"])
        notes = (
            (kept < layers, f"slice_{kept}_of_{layers}_layers"),
            (shrink > 1, f"widths_divided_by_{shrink}"),
            (point.params["pattern"] != "own", str(point.params["pattern"])),
        )
        return tuple(note for holds, note in notes if holds)
