"""What became of a point."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Outcome(StrEnum):
    """The end of a point. Only OK may carry a figure; every other one carries a reason."""

    OK = "ok"
    WRONG = "wrong"
    OOM = "oom"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    THROTTLED = "throttled"
    CRASHED = "crashed"
    PARTIAL = "partial"

    @property
    def is_failure(self) -> bool:
        """Whether something that should have run did not (decides exit code 4)."""
        return self not in (Outcome.OK, Outcome.SKIPPED, Outcome.UNSUPPORTED)


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """Why a backend or an engine will not run a point.

    Attributes:
        outcome: SKIPPED when the machine lacks something (package, device), UNSUPPORTED when
            this combination can't be computed at all.
        reason: One sentence.
        install: The command that would help, if one would.
    """

    outcome: Literal[Outcome.SKIPPED, Outcome.UNSUPPORTED]
    reason: str
    install: str | None = None

    def __str__(self) -> str:
        return f"{self.reason}; install: {self.install}" if self.install else self.reason
