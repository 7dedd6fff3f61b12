"""What the socket delivered for one request, stamped on arrival and not yet interpreted."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchx.serving.request import RequestOutcome


@dataclass(frozen=True)
class Fault:
    """Why a request did not end well."""

    outcome: RequestOutcome
    reason: str


@dataclass(kw_only=True)
class Capture:
    """One exchange. Times are `time.monotonic_ns`.

    Attributes:
        sent_ns: When the request was handed to the socket; None when no connection stood.
        first_byte_ns: Arrival of the first byte of the response.
        last_read_ns: Arrival of the last byte until now.
        end_ns: When it was complete, or given up; None while it runs.
        status: HTTP status; None before the head is complete.
        headers: Response headers, names in lower case; of several equal ones the last.
        stamps_ns: Arrival of each piece of the body.
        pieces: Its bytes, transfer coding removed.
        body_bytes: Their total.
        fault: Why it did not end well; None when the response is complete.
        connects: Connections opened while the clock ran.
    """

    sent_ns: int | None = None
    first_byte_ns: int | None = None
    last_read_ns: int | None = None
    end_ns: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    stamps_ns: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    body_bytes: int = 0
    fault: Fault | None = None
    connects: int = 0

    def body(self) -> bytes:
        """The body in one piece."""
        return b"".join(self.pieces)
