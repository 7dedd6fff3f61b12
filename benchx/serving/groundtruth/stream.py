"""One answer of the ground-truth server: what it sends, when it is due, when it really went out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WORDS = (" alpha", " beta", " gamma", " delta", " epsilon", " zeta", " eta", " theta")


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The schedule of every answer, counted from the arrival of its request.

    Attributes:
        ttft_ms: Until the first token.
        token_ms: From token to token.
        chunk_tokens: Tokens of each chunk.
        role_ms: Until a chunk that only names the role (chat); None sends it with the first token.
    """

    ttft_ms: float
    token_ms: float
    chunk_tokens: int = 1
    role_ms: float | None = None


@dataclass(kw_only=True)
class Truth:
    """What really happened to one request. Times are `time.monotonic_ns` of the server.

    Attributes:
        key: The `user` field of the request.
        received_ns: When its last byte was read.
        first_ns: When the first token was handed to the socket.
        last_ns: When the last one was.
        tokens: Tokens sent.
        max_gap_ns: Longest time between two chunks.
        late_ns: Most that a chunk was behind its schedule.
    """

    key: str
    received_ns: int
    first_ns: int = 0
    last_ns: int = 0
    tokens: int = 0
    max_gap_ns: int = 0
    late_ns: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))


@dataclass(kw_only=True)
class Stream:
    """An answer under way.

    Attributes:
        total: Tokens to send.
        chat: Which API.
        pace: When.
        prompt_tokens: Tokens of the prompt, as usage tells them.
        chunk_usage: Whether every chunk carries usage (`continuous_usage_stats`).
        truth: What happened until now.
    """

    total: int
    chat: bool
    pace: Pace
    prompt_tokens: int
    chunk_usage: bool = False
    truth: Truth

    def due_ns(self) -> int:
        """When the next chunk is due."""
        chunks = self.truth.tokens / self.pace.chunk_tokens
        tokens_ms = chunks * self.pace.chunk_tokens * self.pace.token_ms
        return self.truth.received_ns + int((self.pace.ttft_ms + tokens_ms) * 1e6)

    def next_chunk(self, now_ns: int) -> bytes:
        """The chunk to send at a time; noted as sent."""
        truth = self.truth
        truth.late_ns = max(truth.late_ns, now_ns - self.due_ns())
        if truth.tokens:
            truth.max_gap_ns = max(truth.max_gap_ns, now_ns - truth.last_ns)
        else:
            truth.first_ns = now_ns
        count = min(self.pace.chunk_tokens, self.total - truth.tokens)
        text = "".join(WORDS[(truth.tokens + place) % len(WORDS)] for place in range(count))
        truth.tokens += count
        truth.last_ns = now_ns
        return self._event(text, last=truth.tokens >= self.total)

    def role(self) -> bytes:
        """The chunk that only names the role; nothing for completions."""
        return self._delta('{"role":"assistant","content":""}', "null") if self.chat else b""

    def end(self) -> bytes:
        """Usage, `[DONE]` and the end of the chunked body."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        event = f'data: {{"id":"truth","object":"{kind}","choices":[]{self._usage()}}}\n\n'
        return framed(event) + framed("data: [DONE]\n\n") + b"0\r\n\r\n"

    def _usage(self) -> str:
        tokens = self.truth.tokens
        return (
            f',"usage":{{"prompt_tokens":{self.prompt_tokens},'
            f'"total_tokens":{self.prompt_tokens + tokens},"completion_tokens":{tokens}}}'
        )

    def _event(self, text: str, *, last: bool) -> bytes:
        finish = '"length"' if last else "null"
        if self.chat:
            return self._delta(f'{{"content":"{text}"}}', finish)
        return framed(
            'data: {"id":"truth","object":"text_completion","created":1700000000,"model":"truth",'
            f'"choices":[{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{finish},'
            f'"stop_reason":null}}]{self._usage() if self.chunk_usage else ""}}}\n\n'
        )

    def _delta(self, delta: str, finish: str) -> bytes:
        return framed(
            'data: {"id":"truth","object":"chat.completion.chunk","created":1700000000,'
            f'"model":"truth","choices":[{{"index":0,"delta":{delta},"logprobs":null,'
            f'"finish_reason":{finish}}}]{self._usage() if self.chunk_usage else ""}}}\n\n'
        )


def framed(text: str) -> bytes:
    """One HTTP chunk."""
    data = text.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)
