"""Every level, by explicit list; importing this module registers operators and backends too."""

from __future__ import annotations

import benchx.ops.catalog  # noqa: F401 - registers
from benchx.runner.kernel_level import KernelLevel
from benchx.runner.levels import LEVELS
from benchx.runner.model_level import ModelLevel

LEVELS.add("kernel", KernelLevel())
LEVELS.add("model", ModelLevel())

__all__ = ["LEVELS"]
