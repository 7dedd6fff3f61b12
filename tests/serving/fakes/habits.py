"""A server whose habits are given: what `benchx probe` must find out again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from served import Quiet, served

Body = dict[str, Any]


@dataclass
class Habits:
    """How a server behaves; the defaults are those of a well-behaved one."""

    api: str = "completions"
    usage: str = "on request"
    chunk_usage: bool = True
    tokens_per_chunk: int = 1
    role_chunk: bool = False
    reasoning: str | None = None
    done: bool = True
    comment: bytes = b""
    newline: bytes = b"\n"
    space: bytes = b" "
    known_fields: tuple[str, ...] | None = None
    stops_at: int | None = 5
    token_ids: bool = True
    caches: bool | None = True
    cost: float | None = None
    limit_field: str = "max_tokens"
    headers: dict[str, str] = field(default_factory=dict)
    streams: bool = True
    key: str | None = None
    metrics: bytes | None = None
    seen: list[str] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)

    def refusal(self, body: Body) -> str | None:
        """Why a request is wrong, or None."""
        if self.known_fields is not None and (odd := set(body) - {*self.known_fields}):
            return f"Unexpected fields: {odd}"
        if self.limit_field not in body:
            return "no limit"
        if not self.token_ids and isinstance(body.get("prompt"), list):
            return "prompt must be a string"
        return None

    def tokens(self, body: Body) -> int:
        """How many tokens it generates."""
        asked = int(body[self.limit_field])
        exact = body.get("ignore_eos") or body.get("generation_config")
        return asked if exact or self.stops_at is None else min(asked, self.stops_at)

    def events(self, body: Body) -> Iterator[Body]:
        """The chunks of an answer."""
        total, options = self.tokens(body), body.get("stream_options") or {}
        if self.role_chunk:
            yield {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
        usage, done = self.counts(body, total), 0
        while done < total:
            step = min(self.tokens_per_chunk, total - done)
            done += step
            choice = self.choice(body, step, thinks=bool(self.reasoning) and done <= total // 2)
            if done == total:
                choice["finish_reason"] = "length" if total == body[self.limit_field] else "stop"
            chunk: Body = {"choices": [choice]}
            if self.chunk_usage and options.get("continuous_usage_stats"):
                chunk["usage"] = usage | {"completion_tokens": done}
            yield chunk
        if self.usage == "always" or (self.usage == "on request" and options.get("include_usage")):
            yield {"choices": [], "usage": usage}

    def choice(self, body: Body, tokens: int, *, thinks: bool) -> Body:
        text = " a" * tokens
        if self.api == "chat":
            return {"delta": {self.reasoning if thinks else "content": text}}
        ids = {"token_ids": [7] * tokens} if body.get("return_token_ids") else {}
        return {"text": text} | ids

    def counts(self, body: Body, total: int) -> Body:
        prompt = str(body.get("prompt") or body.get("messages"))
        usage: Body = {"prompt_tokens": len(prompt.split()), "completion_tokens": total}
        if self.caches is not None:
            hit = len(prompt.split()) - 1 if self.caches and prompt in self.seen else 0
            usage["prompt_tokens_details"] = {"cached_tokens": hit}
        if self.cost is not None:
            usage["cost"] = self.cost
        self.seen.append(prompt)
        return usage


class Handler(Quiet):
    """Answers as the habits say; `habits` is set by `serving`."""

    habits: Habits

    def do_GET(self) -> None:
        if self.path == "/metrics":
            page = self.habits.metrics
            self.answer(404 if page is None else 200, page or b"", "text/plain")
            return
        self.answer(200, json.dumps({"data": [{"id": "m"}]}).encode())

    def do_POST(self) -> None:
        habits = self.habits
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        habits.bodies.append(body)
        chat = self.path.endswith("/chat/completions")
        if habits.key and self.headers["Authorization"] != f"Bearer {habits.key}":
            self.answer(401, b'{"error": "no key"}')
        elif chat != (habits.api == "chat"):
            self.answer(404, b"<html>not here</html>", "text/html")
        elif (why := habits.refusal(body)) is not None:
            self.answer(422, json.dumps({"detail": why}).encode())
        elif body["stream"] and habits.streams:
            self.answer(200, self.stream(body), "text/event-stream")
        else:
            self.answer(200, json.dumps(self.whole(body)).encode())

    def stream(self, body: Body) -> bytes:
        habits, end = self.habits, self.habits.newline * 2
        lines = [json.dumps(event).encode() for event in habits.events(body)]
        lines += [b"[DONE]"] * habits.done
        comment = habits.comment and habits.comment + end
        return comment + b"".join(b"data:" + habits.space + line + end for line in lines)

    def whole(self, body: Body) -> Body:
        total = self.habits.tokens(body)
        said, chat = " a" * total, self.habits.api == "chat"
        choice = {"message": {"content": said}} if chat else {"text": said}
        return {"choices": [choice], "usage": self.habits.counts(body, total)}

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **self.habits.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(habits: Habits) -> Iterator[str]:
    """Serve in a thread; yields the base URL."""
    own = type("OwnHandler", (Handler,), {"habits": habits})
    with served(own) as root:
        yield f"{root}/v1"
