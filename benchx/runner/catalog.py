"""Every level, by explicit list; importing this module registers operators and backends too.

A level is imported when it is first asked for: a worker of kernels needs no model and no server.
"""

from __future__ import annotations

import benchx.ops.catalog  # noqa: F401 - registers
from benchx.runner.levels import LEVELS, Level

__all__ = ["LEVELS"]


def _kernel() -> Level:
    from benchx.runner.kernel_level import KernelLevel

    return KernelLevel()


def _model() -> Level:
    from benchx.runner.model_level import ModelLevel

    return ModelLevel()


def _serving() -> Level:
    from benchx.runner.serving_level import ServingLevel

    return ServingLevel()


LEVELS.add_later("kernel", _kernel)
LEVELS.add_later("model", _model)
LEVELS.add_later("serving", _serving)
