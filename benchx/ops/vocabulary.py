"""The words of kernel scenarios: every registered operator, its axes and its backends."""

from __future__ import annotations

from collections.abc import Mapping

import benchx.ops.catalog  # noqa: F401  (registers the built-in operators)
from benchx.ops.base import OPERATORS, backends_of
from benchx.scenario.vocabulary import OpWords


def kernel_words() -> Mapping[str, OpWords]:
    """Operator name -> its words, plugins included; needs no device and imports no torch."""
    return {
        operator.name: OpWords(
            axes=operator.axes,
            backends=backends_of(operator.name).names(),
            problem=operator.problem,
        )
        for operator in OPERATORS
    }
