"""Run folders: what was measured, written ahead and never overwritten (see results/README.md)."""

from benchx.store.launches import LaunchInfo
from benchx.store.meta import PlanEntry, RunMeta, read_meta
from benchx.store.run import Run, RunStatus, read_run
from benchx.store.writer import RunWriter

__all__ = [
    "LaunchInfo",
    "PlanEntry",
    "Run",
    "RunMeta",
    "RunStatus",
    "RunWriter",
    "read_meta",
    "read_run",
]
