"""From what was captured of one exchange to its result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

import orjson

from benchx.serving.client_fields import payload_of, usage_in, usage_of
from benchx.serving.client_finish import finish_fault
from benchx.serving.client_stream import (
    StreamReader,
    error_fault,
    outcome_of_status,
    shorten,
    show,
)
from benchx.serving.client_window import windows_of
from benchx.serving.http_capture import Capture, Fault
from benchx.serving.request import Request, RequestOutcome, RequestResult, Usage

_KEPT_HEADERS = ("x-request-id", "x-ratelimit-", "x-provider", "x-served-by", "cf-ray", "server")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request and what was captured of it.

    Attributes:
        intended_ns: When it should have been sent.
        stream: Whether a stream was asked for.
        exact: Whether an answer shorter than `max_tokens` was forbidden.
        redact: Takes secrets out of a text.
    """

    request: Request
    capture: Capture
    intended_ns: int
    stream: bool
    exact: bool = False
    redact: Callable[[str], str]


def decode(exchange: Exchange) -> RequestResult:
    """The result, in one go."""
    steps = decode_steps(exchange)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: RequestResult = end.value
            return result


def decode_steps(exchange: Exchange) -> Generator[None, None, RequestResult]:
    """The result as the generator's return value; it yields after every window of the body.

    So that a caller can look after its sockets in between.
    """
    capture = exchange.capture
    if _is_stream(exchange):
        reader = StreamReader()
        for window in windows_of(capture.stamps_ns, capture.pieces):
            reader.feed(window)
            yield
        if capture.fault is None and capture.last_read_ns is not None:
            reader.close(capture.last_read_ns)
        return _streamed(exchange, reader)
    return _whole(exchange)


def _is_stream(exchange: Exchange) -> bool:
    capture = exchange.capture
    kind = capture.headers.get("content-type", "").lower()
    told = "event-stream" in kind or not ("json" in kind or "html" in kind)
    return exchange.stream and capture.status == 200 and told


def _streamed(exchange: Exchange, reader: StreamReader) -> RequestResult:
    capture = exchange.capture
    fault, notes = _stream_fault(capture, reader), []
    ended_well = reader.done or reader.finish_reason is not None
    if capture.fault is not None and fault is None:
        notes.append("unclean_end")
    hidden = _hidden_tokens(reader)
    notes += ["hidden_reasoning"] if hidden else []
    if reader.arrivals_ns and not reader.tokens_known:
        notes += ["chunk_is_not_token"] if _coarse(reader, hidden) else []
    fault = fault or finish_fault(reader.finish_reason)
    if fault is None and not reader.arrivals_ns:
        tokens = reader.usage.completion_tokens if reader.usage else None
        said = f", though usage says {tokens} tokens" if tokens else ""
        fault = Fault(RequestOutcome.EMPTY, f"a complete answer without any generated text{said}")
    if fault is None and not ended_well:
        reason = "the stream ended without finish_reason and [DONE]"
        fault = Fault(RequestOutcome.TRUNCATED, reason)
    times = {
        "first_token_ns": reader.first_ns,
        "first_reasoning_ns": reader.first_reasoning_ns,
        "first_visible_ns": reader.first_visible_ns,
        "last_token_ns": reader.arrivals_ns[-1] if reader.arrivals_ns else None,
        "arrivals_ns": tuple(reader.arrivals_ns),
        "chunk_tokens": tuple(reader.chunk_tokens),
        "chunk_tokens_known": bool(reader.arrivals_ns) and reader.tokens_known,
        "client_tokens": sum(reader.chunk_tokens),
        "finish_reason": reader.finish_reason,
        "done": reader.done,
        "comments": reader.comments,
        "text": reader.text,
        "reasoning": reader.reasoning,
    }
    notes += _usage_notes(exchange.request, reader.usage, len(reader.arrivals_ns))
    return _result(exchange, fault, reader.usage, notes, times)


def _stream_fault(capture: Capture, reader: StreamReader) -> Fault | None:
    """What went wrong before the question whether the answer is complete."""
    if reader.fault is not None:
        return reader.fault
    if capture.fault is not None:
        # A server that forgets to end the message after [DONE] has nevertheless answered.
        late = capture.fault.outcome in (RequestOutcome.TIMEOUT, RequestOutcome.DISCONNECTED)
        return None if reader.done and late else capture.fault
    if not reader.events and capture.body_bytes and not reader.comments:
        text = f"no events in the stream: {show(capture.pieces[0])}"
        return Fault(RequestOutcome.PROTOCOL, text)
    return None


def _hidden_tokens(reader: StreamReader) -> int:
    """Tokens of reasoning that the server counted and did not send; 0 where it sent all or is mute.

    Where reasoning is part of the visible text, there are more chunks than the other tokens fill.
    """
    usage, chunks = reader.usage, len(reader.arrivals_ns)
    if usage is None or not chunks or reader.first_reasoning_ns is not None:
        return 0
    total, reasoning = usage.completion_tokens or 0, usage.reasoning_tokens or 0
    return reasoning if chunks <= total - reasoning else 0


def _coarse(reader: StreamReader, hidden: int) -> bool:
    """Whether chunks hold several tokens each, by the server's total."""
    total = reader.usage.completion_tokens if reader.usage else None
    return total is not None and total - hidden > 1.2 * len(reader.arrivals_ns) + 1


def _whole(exchange: Exchange) -> RequestResult:
    """An answer in one piece, or none at all."""
    capture = exchange.capture
    fault = capture.fault or _status_fault(capture)
    notes = ["not_streamed"] if exchange.stream and fault is None else []
    if fault is not None:
        return _result(exchange, fault, None, notes, {})
    try:
        body = orjson.loads(capture.body())
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        kind = capture.headers.get("content-type", "nothing")
        text = f"expected JSON, got {kind}: {show(capture.body()[:400])}"
        empty = not capture.body_bytes
        outcome = RequestOutcome.EMPTY if empty else RequestOutcome.PROTOCOL
        return _result(exchange, Fault(outcome, text), None, notes, {})
    if body.get("error"):
        return _result(exchange, error_fault(body, capture.body()), None, notes, {})
    return _answer(exchange, body, notes)


def _answer(exchange: Exchange, body: dict[str, Any], notes: list[str]) -> RequestResult:
    found, choices = usage_in(body), body.get("choices")
    usage = usage_of(found) if found is not None else None
    listed = choices if isinstance(choices, list) else []
    choice: dict[str, Any] = next((c for c in listed if isinstance(c, dict)), {})
    payload = payload_of(choice)
    finish = str(choice.get("finish_reason") or "") or None
    tokens = usage.completion_tokens if usage else None
    failed = error_fault(choice, exchange.capture.body()) if choice.get("error") else None
    fault = failed or finish_fault(finish)
    if fault is None and not payload.is_generated:
        fault = Fault(RequestOutcome.EMPTY, "an answer without any generated text")
    values = {
        "client_tokens": payload.tokens or tokens or 0,
        "finish_reason": finish,
        "text": payload.visible,
        "reasoning": payload.reasoning,
    }
    return _result(exchange, fault, usage, notes, values)


def _status_fault(capture: Capture) -> Fault | None:
    status = capture.status
    if status == 200:
        return None
    if status is not None and 300 <= status < 400:
        target = shorten(capture.headers.get("location", "nowhere"))
        return Fault(RequestOutcome.PROTOCOL, f"HTTP {status}: redirects ({target}) are refused")
    outcome = outcome_of_status(status or 0) or RequestOutcome.PROTOCOL
    return Fault(outcome, f"HTTP {status}: {_message(capture.body())}")


def _message(body: bytes) -> str:
    """What an error answer says, from the usual JSON forms, else its beginning."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    found = data.get("error", data) if isinstance(data, dict) else None
    if isinstance(found, dict):
        found = found.get("message") or found.get("detail")
    if isinstance(found, str) and found:
        return shorten(found)
    return show(body) if body else "no explanation"


def _usage_notes(request: Request, usage: Usage | None, chunks: int) -> list[str]:
    """What is odd about the server's own count."""
    if usage is None:
        return ["no_usage"] if chunks else []
    tokens = usage.completion_tokens
    if chunks and not tokens:
        return ["usage_implausible"]
    if tokens is not None and tokens > request.max_tokens:
        return ["exceeds_max_tokens"]
    return ["more_chunks_than_tokens"] if tokens is not None and tokens < chunks else []


def _is_short(exchange: Exchange, usage: Usage | None, values: Mapping[str, Any]) -> bool:
    """Whether fewer tokens came than were demanded exactly, as far as anybody counted them."""
    tokens = usage.completion_tokens if usage else None
    if tokens is None and values.get("chunk_tokens_known"):
        tokens = values["client_tokens"]
    return exchange.exact and 0 < (tokens or 0) < exchange.request.max_tokens


def _result(
    exchange: Exchange,
    fault: Fault | None,
    usage: Usage | None,
    notes: list[str],
    values: dict[str, Any],
) -> RequestResult:
    request, capture = exchange.request, exchange.capture
    notes += ["short_of_exact"] if fault is None and _is_short(exchange, usage, values) else []
    headers = {
        name: exchange.redact(value)
        for name, value in capture.headers.items()
        if name.startswith(_KEPT_HEADERS)
    }
    end_ns = capture.end_ns if capture.end_ns is not None else exchange.intended_ns
    return RequestResult(
        index=request.index,
        session=request.session,
        label=request.label,
        outcome=fault.outcome if fault else RequestOutcome.OK,
        reason=exchange.redact(fault.reason) if fault else None,
        status=capture.status,
        max_tokens=request.max_tokens,
        intended_ns=exchange.intended_ns,
        sent_ns=capture.sent_ns,
        first_byte_ns=capture.first_byte_ns,
        end_ns=end_ns,
        usage=usage,
        prompt_tokens=request.prompt_tokens,
        retry_after_s=retry_after_s(capture.headers.get("retry-after")),
        response_bytes=capture.body_bytes,
        connects=capture.connects,
        headers=headers,
        notes=tuple(notes),
        **values,
    )


def retry_after_s(text: str | None) -> float | None:
    """Seconds of a Retry-After header, given as seconds or as a date (RFC 9110, 10.2.3)."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds < 1e9 else None
