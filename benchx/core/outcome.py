"""What became of a point."""

from __future__ import annotations

from enum import StrEnum


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
