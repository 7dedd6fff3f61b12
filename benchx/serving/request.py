"""What goes to a server, what came back, and when: the values that the serving level shares.

Times are nanoseconds of `time.monotonic_ns`, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

from benchx.core.errors import UsageError

Api = Literal["completions", "chat"]

PATHS: Mapping[Api, str] = {"completions": "/completions", "chat": "/chat/completions"}
"""Path of each API below the base URL."""


class RequestOutcome(StrEnum):
    """What became of one request. Only OK enters latency figures."""

    OK = "ok"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    HTTP_4XX = "http_4xx"
    RATE_LIMITED = "rate_limited"
    HTTP_5XX = "http_5xx"
    DISCONNECTED = "disconnected"
    PROTOCOL = "protocol"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to a server.

    Attributes:
        index: Its place in the workload, from 0; unique within a point.
        prompt: Text, or token ids (completions only); ignored when `messages` is given.
        messages: The conversation (chat only); None makes one user message of `prompt`.
        max_tokens: Most tokens to generate.
        intended_at_s: When it should be sent, in seconds after the start of the load; None leaves
            that to the load generator.
        session: Conversation it belongs to; requests of one session follow one another.
        extra: Further fields of the request body (`ignore_eos`, `temperature`, ...); they override
            those of the endpoint.
        prompt_tokens: Tokens of the prompt by the client's own count; None when not counted.
        delay_s: Seconds to wait after the session's previous answer (a tool call, a reader).
        label: Class of the request (`cold`, `group 3`, ...), kept beside its result.
    """

    index: int
    prompt: str | tuple[int, ...] = ""
    messages: tuple[Mapping[str, Any], ...] | None = None
    max_tokens: int
    intended_at_s: float | None = None
    session: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    prompt_tokens: int | None = None
    delay_s: float = 0.0
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the server says it counted; None where it says nothing.

    Attributes:
        prompt_tokens: Tokens of the prompt, cached ones included.
        completion_tokens: Tokens generated, reasoning included.
        cached_tokens: Part of the prompt that was taken from a cache.
        reasoning_tokens: Part of the completion that was reasoning.
        cost: What a hosted service charged for this request, in its currency (US dollars).
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class RequestResult:
    """One request as the client saw it.

    Attributes:
        index: Of the request.
        session: Of the request.
        label: Of the request.
        outcome: What became of it.
        reason: Why it is not ok; None for ok.
        status: HTTP status; None when no response began.
        max_tokens: Tokens that were asked for.
        intended_ns: When it should have been sent.
        sent_ns: When its bytes were handed to the socket; None when it never was.
        first_byte_ns: Arrival of the first byte of the response.
        first_token_ns: Arrival of the first generated payload of any kind (text, reasoning, tool
            call), never of a chunk that only names the role. None for one that was not streamed.
        first_reasoning_ns: Arrival of the first reasoning text.
        first_visible_ns: Arrival of the first text or tool call that is not reasoning.
        last_token_ns: Arrival of the last generated payload.
        end_ns: When the response was complete, or was given up.
        arrivals_ns: Arrival of every chunk that holds generated payload, in order.
        chunk_tokens: Tokens of each of these chunks, as told by the server (`usage` in every
            chunk, or token ids); else 1 each and `chunk_tokens_known` is false.
        chunk_tokens_known: See `chunk_tokens`.
        usage: The server's own count; None when it gave none.
        client_tokens: The client's own count of generated tokens: the sum of `chunk_tokens`.
        prompt_tokens: The client's own count of the prompt; None when not counted.
        finish_reason: As the server put it.
        done: Whether `[DONE]` was received.
        comments: SSE comments received (keep-alives).
        text: Visible text; reasoning is apart.
        reasoning: Reasoning text.
        retry_after_s: What the server asked for with 429 or 503.
        response_bytes: Bytes of the response body.
        connects: Connections opened for this request while its clock ran (0: a warm one served).
        headers: Response headers that matter (request id, provider, rate limits).
        notes: What a reader of its figures must know: `hidden_reasoning` (tokens of reasoning were
            counted and never sent), `short_of_exact` (fewer tokens than were demanded exactly),
            `usage_implausible`, ...
    """

    index: int
    session: str | None = None
    label: str | None = None
    outcome: RequestOutcome
    reason: str | None = None
    status: int | None = None
    max_tokens: int
    intended_ns: int
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    first_reasoning_ns: int | None = None
    first_visible_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int
    arrivals_ns: tuple[int, ...] = ()
    chunk_tokens: tuple[int, ...] = ()
    chunk_tokens_known: bool = False
    usage: Usage | None = None
    client_tokens: int = 0
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    comments: int = 0
    text: str = ""
    reasoning: str = ""
    retry_after_s: float | None = None
    response_bytes: int = 0
    connects: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.outcome is RequestOutcome.OK) != (self.reason is None):
            raise ValueError(f"request {self.index}: {self.outcome} with reason {self.reason!r}")

    @property
    def output_tokens(self) -> int:
        """Generated tokens: the server's count where it is plausible, else the client's own."""
        counted = self.usage.completion_tokens if self.usage else None
        if counted is None or "usage_implausible" in self.notes:
            return self.client_tokens
        return counted

    @property
    def streamed_tokens(self) -> int:
        """Generated tokens that arrived in chunks: all but reasoning that the server kept back."""
        usage = self.usage
        if usage is None or "hidden_reasoning" not in self.notes:
            return self.output_tokens
        return self.output_tokens - (usage.reasoning_tokens or 0)

    @property
    def input_tokens(self) -> int | None:
        """Tokens of the prompt: the server's count, else the client's own, else None."""
        counted = self.usage.prompt_tokens if self.usage else None
        return self.prompt_tokens if counted is None else counted

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` restores an equal result."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        usage = None if self.usage is None else dict(vars(self.usage))
        return plain | {"outcome": self.outcome.value, "usage": usage}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RequestResult:
        """Restore what `to_json` wrote, also after a detour through JSON text."""
        plain = dict(data)
        plain["outcome"] = RequestOutcome(plain["outcome"])
        plain["usage"] = None if plain["usage"] is None else Usage(**plain["usage"])
        for name in ("arrivals_ns", "chunk_tokens", "notes"):
            plain[name] = tuple(plain[name])
        return cls(**plain)


@dataclass(frozen=True, kw_only=True)
class TimeLimits:
    """Seconds after which a request is given up; each costs that request only.

    Attributes:
        connect_s: Until a connection stands (TLS included).
        first_byte_s: From sending until the first generated payload; engines send the headers at
            once, some a chunk that names the role as well, and queue the request behind them. Of an
            answer that is not streamed: until the first byte of the body.
        idle_s: Between two reads of the body, from that payload on.
        total_s: From sending until the response is complete.
    """

    connect_s: float = 10.0
    first_byte_s: float = 600.0
    idle_s: float = 120.0
    total_s: float = 3600.0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where and how to ask. It names the variables that hold secrets, never a secret.

    Attributes:
        base_url: Up to and including `/v1`, as OpenAI clients take it.
        api: Which API.
        model: Name of the model as the server knows it.
        headers: Further request headers; they are stored with the results, so no secrets here.
        header_env: Header -> environment variable that holds its value.
        api_key_env: Environment variable that holds the key sent as `Authorization: Bearer`.
        extra_body: Further fields of every request body.
        stream: Whether answers are streamed.
        ask_usage: Whether to ask for usage at the end of a stream (`stream_options`).
        ask_chunk_usage: Whether to ask for usage in every chunk (vLLM, SGLang).
        max_tokens_field: Name of the field that limits the output.
        verify_tls: Whether the server's certificate is checked.
        ca_file: File of certificate authorities to trust instead of the system's.
    """

    base_url: str
    api: Api
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    header_env: Mapping[str, str] = field(default_factory=dict)
    api_key_env: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = True
    ask_usage: bool = True
    ask_chunk_usage: bool = False
    max_tokens_field: str = "max_tokens"
    verify_tls: bool = True
    ca_file: str | None = None

    @property
    def url(self) -> str:
        """Full URL of the API."""
        return self.at(PATHS[self.api])

    def at(self, path: str) -> str:
        """The URL of a path below the base URL, whose query (`?api-version=..`) is kept."""
        base, mark, query = self.base_url.partition("#")[0].partition("?")
        return base.rstrip("/") + path + mark + query

    def secret_headers(self) -> dict[str, str]:
        """Headers whose values come from the environment; never store or print the result.

        Raises:
            UsageError: A variable is not set, or its value can't be a header.
        """
        found = {name: _variable(variable) for name, variable in self.header_env.items()}
        if self.api_key_env is not None:
            found["Authorization"] = f"Bearer {_variable(self.api_key_env)}"
        return found


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise UsageError(
            f"the environment variable {name} is not set", hint=f"export {name}=... and run again"
        )
    if not value.isascii() or not value.isprintable():
        raise UsageError(f"the value of {name} can't be sent in a header: not printable ASCII")
    return value
