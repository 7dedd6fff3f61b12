"""The words of model scenarios: architectures, phases, axes and backends."""

from __future__ import annotations

from benchx.architectures import load_architecture, shipped_architectures
from benchx.ops.model_backend import model_backend_names
from benchx.ops.model_operator import ModelOperator
from benchx.scenario.vocabulary import ModelWords, OpWords


def model_words() -> ModelWords:
    """What a scenario may say of models; needs no device and imports no torch."""
    return ModelWords(architectures=shipped_architectures(), words=_words)


def _words(architecture: str, phase: str) -> OpWords:
    operator = ModelOperator(architecture, phase)
    return OpWords(
        axes=operator.axes,
        backends=model_backend_names(load_architecture(architecture), phase),
        problem=operator.problem,
    )
