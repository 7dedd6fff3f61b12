"""Every level, by explicit list; importing this module registers operators and backends too."""

from __future__ import annotations

import benchx.ops.catalog  # noqa: F401 - registers
from benchx.runner.kernel_level import KernelLevel
from benchx.runner.levels import LEVELS

LEVELS.add("kernel", KernelLevel())

__all__ = ["LEVELS"]
