"""From the events of one stream to times, tokens and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from benchx.serving.client_fields import payload_of, usage_in, usage_of
from benchx.serving.client_mould import Mould
from benchx.serving.http_capture import Fault
from benchx.serving.request import RequestOutcome, Usage
from benchx.serving.sse import SseError, SseEvent, SseParser

_EXCERPT = 200


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
        self._mould: Mould | None = None

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

    def feed(self, stamp_ns: int, data: bytes) -> None:
        """Read what arrived at a time; after a fault nothing is read any more."""
        if self.fault is not None:
            return
        if self._mould is not None and self._sse.is_between_events:
            texts = self._mould.texts_of(data)
            if texts is not None:
                self._plain(stamp_ns, texts)
                return
        try:
            events = self._sse.feed(data)
        except SseError as error:
            self._fail(RequestOutcome.PROTOCOL, str(error))
            return
        for event in events:
            self._event(stamp_ns, event)

    def close(self, stamp_ns: int) -> None:
        """The stream ended; its last event may lack the blank line."""
        if self.fault is None:
            for event in self._sse.close():
                self._event(stamp_ns, event)

    def _fail(self, outcome: RequestOutcome, reason: str) -> None:
        if self.fault is None:
            self.fault = Fault(outcome, reason)

    def _plain(self, stamp_ns: int, texts: list[str]) -> None:
        """Chunks of visible text of which nothing else is new."""
        count = len(texts)
        self.events += count
        self._text += texts
        self.arrivals_ns += [stamp_ns] * count
        self.chunk_tokens += [1] * count

    def _event(self, stamp_ns: int, event: SseEvent) -> None:
        data = event.data
        if self._mould is not None and not event.name:
            text = self._mould.text_of(data)
            if text is not None:
                self._plain(stamp_ns, [text])
                return
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
            self.fault = self.fault or error_fault(chunk, data)
        else:
            self._chunk(stamp_ns, chunk)
            if self.first_visible_ns is not None and not self.tokens_known:
                self._mould = Mould.of(data, chunk)

    def _chunk(self, stamp_ns: int, chunk: Mapping[str, Any]) -> None:
        usage = usage_in(chunk)
        if usage is not None:
            self.usage = usage_of(usage)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(stamp_ns, choice, has_usage=usage is not None)

    def _choice(self, stamp_ns: int, choice: Mapping[str, Any], *, has_usage: bool) -> None:
        reason = choice.get("finish_reason")
        if reason:
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
