"""The seam between a run and the place where its launches happen (processes here, or elsewhere)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchx.runner.events import Event
from benchx.runner.spec import LaunchSpec


@dataclass(frozen=True, kw_only=True)
class Exited:
    """A worker is gone.

    Attributes:
        code: Exit code; negative: the signal that ended it.
        oom_kills: Processes that the kernel's out-of-memory killer ended meanwhile; None where
            the kernel does not tell.
        garbled: The line that was not an event, if that is why the worker was stopped.
    """

    code: int
    oom_kills: int | None = None
    garbled: str | None = None


class Worker(Protocol):
    """A launch that is under way."""

    def next(self, timeout_s: float) -> Event | Exited | None:
        """The next event (`Sources` first); `Exited` at the end; None when nothing came in time."""

    def kill(self) -> None:
        """End it and everything it started; harmless when it is gone already."""

    def log_tail(self) -> str:
        """The last lines that it printed, in one line of text; empty when it printed nothing."""


class Executor(Protocol):
    """Starts workers."""

    def start(self, spec: LaunchSpec, log: Path) -> Worker:
        """Start one; what it prints is appended to `log`. Raises RunFailed when it can't."""
