"""From the events of one stream to times, tokens and text."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import orjson

from benchx.serving.client_fields import payload_of, usage_in, usage_of
from benchx.serving.client_finish import finish_fault
from benchx.serving.client_mould import Mould, Run
from benchx.serving.client_mould_usage import UsageMould, mould_of
from benchx.serving.client_window import Window, windows_of
from benchx.serving.http_capture import Capture, Fault
from benchx.serving.request import RequestOutcome, Usage
from benchx.serving.sse import SseError, SseEvent, SseParser

_EXCERPT = 200

_LONGEST_GAP = 64
"""Most events between two attempts at a mould, where none has been of use."""


class StreamReader:
    """Reads the body of a streamed answer, piece by piece.

    Attributes:
        first_ns: Arrival of the first generated payload; None before it.
        first_reasoning_ns: The same for reasoning.
        first_visible_ns: The same for what is not reasoning.
        arrivals_ns: Arrival of each chunk with payload.
        chunk_tokens: Tokens of each, 1 where the server does not say.
        tokens_known: Whether the server said so for all of them.
        finish_reason: As sent.
        done: Whether `[DONE]` came.
        usage: The last usage seen.
        fault: What made the stream unreadable, or the error that the server sent in it.
        events: Events seen, of any kind.
    """

    def __init__(self) -> None:
        self._sse = SseParser()
        self._counted: int | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.first_ns: int | None = None
        self.first_reasoning_ns: int | None = None
        self.first_visible_ns: int | None = None
        self.arrivals_ns: list[int] = []
        self.chunk_tokens: list[int] = []
        self.tokens_known = True
        self.finish_reason: str | None = None
        self.done = False
        self.usage: Usage | None = None
        self.fault: Fault | None = None
        self.events = 0
        self._mould: Mould | UsageMould | None = None
        self._mould_due, self._mould_gap = 0, 1

    @property
    def comments(self) -> int:
        """SSE comments seen."""
        return self._sse.comments

    @property
    def text(self) -> str:
        """Visible text until now."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """Reasoning text until now."""
        return "".join(self._reasoning)

    def feed(self, window: Window) -> None:
        """Read what comes next; after a fault nothing is read any more."""
        place = 0
        while place < len(window.data) and self.fault is None:
            place = self._run(window, place) or self._exactly(window, place)

    def _run(self, window: Window, start: int) -> int:
        """Read chunks that are known but for their text; where they end, 0 if there are none."""
        if self._mould is None or not self._sse.is_between_events:
            return 0
        if self._mould.has_usage and self._counted is None:
            return 0  # from where its usage grows is not known
        run = self._mould.run(window.data, start)
        if run is None:
            return 0
        count = len(run.complete)
        self.events += count
        (self._reasoning if self._mould.is_reasoning else self._text).append(run.text)
        self.arrivals_ns += window.stamps_ns(run.complete)
        self.chunk_tokens += self._tokens_of(run)
        self._mould_gap = 1
        return run.end

    def _tokens_of(self, run: Run) -> list[int]:
        """Tokens of each chunk of a run: by how much its usage grew, else 1."""
        if not run.totals:
            return [1] * len(run.complete)
        totals = [self._counted or 0, *run.totals]
        self.usage, self._counted = usage_of(run.usage), totals[-1]
        return [max(after - before, 0) for before, after in pairwise(totals)]

    def _exactly(self, window: Window, start: int) -> int:
        """Read up to the next blank line, whatever that is; where it ends."""
        end, is_event = window.event_end(start), self._sse.is_between_events
        chunks = len(self.arrivals_ns)
        try:
            for stamp_ns, part in window.parts(start, end):
                for event in self._sse.feed(part):
                    self._event(stamp_ns, event)
        except SseError as error:
            self._fail(RequestOutcome.PROTOCOL, str(error))
        is_chunk = is_event and len(self.arrivals_ns) == chunks + 1
        goes_on = self.fault is None and self.finish_reason is None
        if is_chunk and goes_on and self.events >= self._mould_due:
            self._learn(window.data[start:end])
        return end

    def _learn(self, event: bytes) -> None:
        """Try to make a mould of an event; the more often that was in vain, the later again."""
        self._mould = mould_of(event) or self._mould
        self._mould_due = self.events + self._mould_gap
        self._mould_gap = min(2 * self._mould_gap, _LONGEST_GAP)

    def close(self, stamp_ns: int) -> None:
        """The stream ended; its last event may lack the blank line."""
        if self.fault is None:
            for event in self._sse.close():
                self._event(stamp_ns, event)

    def _fail(self, outcome: RequestOutcome, reason: str) -> None:
        self.fault = self.fault or Fault(outcome, reason)

    def _event(self, stamp_ns: int, event: SseEvent) -> None:
        if self.fault is not None:
            return
        data = event.data
        self.events += 1
        if data[:6] == b"[DONE]":
            self.done = True
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            if data.strip():
                self._fail(RequestOutcome.PROTOCOL, f"an event is not JSON: {error}: {show(data)}")
            return
        if not isinstance(chunk, dict):
            self._fail(RequestOutcome.PROTOCOL, f"an event is no JSON object: {show(data)}")
        elif event.name == b"error" or chunk.get("error"):
            self.fault = error_fault(chunk, data)
        else:
            self._chunk(stamp_ns, chunk)

    def _chunk(self, stamp_ns: int, chunk: Mapping[str, Any]) -> None:
        usage = usage_in(chunk)
        if usage is not None:
            self.usage = usage_of(usage)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(stamp_ns, choice, has_usage=usage is not None)

    def _choice(self, stamp_ns: int, choice: Mapping[str, Any], *, has_usage: bool) -> None:
        if choice.get("error"):
            self.fault = error_fault(choice, orjson.dumps(choice))
            return
        reason = choice.get("finish_reason")
        if reason and finish_fault(self.finish_reason) is None:  # of several the bad one stays
            self.finish_reason = str(reason)
        payload = payload_of(choice)
        grown = self._growth() if has_usage else None
        if not payload.is_generated and not grown:
            return
        if payload.visible:
            self._text.append(payload.visible)
        if payload.reasoning:
            self._reasoning.append(payload.reasoning)
        self._count(stamp_ns, payload.tokens or grown)
        if self.first_reasoning_ns is None and payload.reasoning:
            self.first_reasoning_ns = stamp_ns
        if self.first_visible_ns is None and (payload.visible or payload.is_tool):
            self.first_visible_ns = stamp_ns

    def _growth(self) -> int | None:
        """Tokens by which the usage grew, where every chunk carries usage.

        A usage that comes only at the end says nothing of single chunks: then the first chunk with
        payload had none, and growth is not known.
        """
        total = self.usage.completion_tokens if self.usage else None
        if total is None or (self._counted is None and self.arrivals_ns):
            return None
        grown = total - (self._counted or 0)
        self._counted = total
        return max(grown, 0)

    def _count(self, stamp_ns: int, tokens: int | None) -> None:
        if self.first_ns is None:
            self.first_ns = stamp_ns
        if tokens is None:
            self.tokens_known = False
        self.arrivals_ns.append(stamp_ns)
        self.chunk_tokens.append(1 if tokens is None else tokens)


def has_payload(capture: Capture) -> bool:
    """Whether what arrived until now holds anything that the model generated.

    Role-only chunks and comments don't count; of an answer that is no stream, any byte does.
    """
    if "event-stream" not in capture.headers.get("content-type", "").lower():
        return bool(capture.pieces)
    reader = StreamReader()
    for window in windows_of(capture.stamps_ns, capture.pieces):
        reader.feed(window)
        if reader.first_ns is not None:
            return True
    return False


def error_fault(chunk: Mapping[str, Any], data: bytes) -> Fault:
    """What an error object within a 200 answer means: its own code decides, if it has one."""
    found = chunk.get("error") or chunk
    code = found.get("code") if isinstance(found, dict) else None
    message = found.get("message") if isinstance(found, dict) else found
    text = message if isinstance(message, str) and message else show(data)
    outcome = RequestOutcome.PROTOCOL
    if isinstance(code, int | str) and str(code).isdigit():
        outcome = outcome_of_status(int(code)) or outcome
    return Fault(outcome, f"the server sent an error within its answer: {shorten(text)}")


def outcome_of_status(status: int) -> RequestOutcome | None:
    """The outcome of an HTTP status; None for one that is no error."""
    if status == 429:
        return RequestOutcome.RATE_LIMITED
    if 400 <= status < 500:
        return RequestOutcome.HTTP_4XX
    return RequestOutcome.HTTP_5XX if 500 <= status < 600 else None


def show(data: bytes) -> str:
    """Bytes of a server for a message: short, on one line, printable."""
    return repr(shorten(data[: 2 * _EXCERPT].decode("utf-8", errors="backslashreplace")))


def shorten(text: str) -> str:
    """A server's text on one line, at most 200 characters."""
    flat = " ".join(text.split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in flat)
    return printable if len(printable) <= _EXCERPT else printable[: _EXCERPT - 3] + "..."
