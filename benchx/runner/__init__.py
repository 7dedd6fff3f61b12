"""Plan, launches, records: every launch in a process of its own; see `runner.run`.

Names are looked up on first use: a worker imports this package too, and should not spend a second
on the scenario loader, which it does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_HOMES = {
    "NEWEST": "execution",
    "RunSummary": "execution",
    "run": "execution",
    "Interrupted": "interrupts",
    "Advance": "progress",
    "PlanSize": "progress",
    "Progress": "progress",
    "Silent": "progress",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"benchx.runner.{_HOMES[name]}"), name)
