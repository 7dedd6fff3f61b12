"""Plan, launches, records: every launch in a process of its own; see `runner.run`."""

from benchx.runner.execution import NEWEST, RunSummary, run
from benchx.runner.interrupts import Interrupted
from benchx.runner.progress import Advance, PlanSize, Progress, Silent

__all__ = [
    "NEWEST",
    "Advance",
    "Interrupted",
    "PlanSize",
    "Progress",
    "RunSummary",
    "Silent",
    "run",
]
