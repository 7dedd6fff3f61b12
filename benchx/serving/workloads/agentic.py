"""`agentic`: recorded sessions of agents, by lengths and block hashes or by their messages.

Two forms of JSONL, told apart by their fields:
- one trace per line, `{"id", "block_tokens"?, "requests": [{"t", "in", "out", "hash_ids"}]}`: `t`
  is seconds since the start of the trace, blocks have 64 tokens unless said, and a hash means the
  same block within its trace only;
- one conversation per line, `{"turns": [{"messages": [...], "output_tokens", "delay_s"?}]}`.
A request follows the answer to the one before it; what the recording waited in between (tools,
people) is kept as a pause, at most `MAX_PAUSE_S`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchx.core.errors import UsageError
from benchx.serving.request import Request
from benchx.serving.workloads.base import DATASETS, Dataset, Draw, WorkloadSettings
from benchx.serving.workloads.blocks import Blocks
from benchx.serving.workloads.files import json_lines, listed, objects, real, whole
from benchx.serving.workloads.salting import salted_messages
from benchx.serving.workloads.texts import enough

BLOCK_TOKENS = 64
MAX_PAUSE_S = 300.0
"""A recording of a person at lunch must not idle a server for an hour."""


def agentic(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """`sessions` recorded sessions (all when not said), those of equal turn standing together."""
    path: Path = settings.need("path")
    sessions: dict[str | None, list[Request]] = {}
    for line, row in json_lines(path):
        if len(sessions) == settings.sessions:
            break
        turns = list(_turns(settings, draw, row, path, line))
        if turns and turns[0].session in sessions:
            raise UsageError(
                f"{path}:{line}: id: {row.get('id')!r} is that of an earlier line; expected another"
            )
        if turns:
            sessions[turns[0].session] = turns
    made = list(sessions.values())
    longest = max(map(len, made), default=0)
    by_turn = [turns[turn] for turn in range(longest) for turns in made if turn < len(turns)]
    kept = by_turn[: settings.requests]
    return enough([replace(one, index=index) for index, one in enumerate(kept)], settings, path)


def _turns(
    settings: WorkloadSettings, draw: Draw, row: Mapping[str, Any], path: Path, line: int
) -> Iterator[Request]:
    if isinstance(row.get("requests"), list):
        yield from _hashed(settings, draw, row, path, line)
    elif isinstance(row.get("turns"), list):
        yield from _spoken(settings, draw, row, path, line)
    else:
        raise UsageError(f"{path}:{line}: expected `requests` or `turns`, each a list")


def _hashed(
    settings: WorkloadSettings, draw: Draw, row: Mapping[str, Any], path: Path, line: int
) -> Iterator[Request]:
    name = str(row.get("id", f"line {line}"))
    size = whole(path, line, row, "block_tokens") if "block_tokens" in row else BLOCK_TOKENS
    blocks, before_s = Blocks(draw, size, scope=name), None
    for turn, one in enumerate(objects(path, line, row, "requests")):
        tokens, output = whole(path, line, one, "in"), whole(path, line, one, "out")
        if not tokens or not output or tokens > (settings.max_input_len or tokens):
            continue
        at_s = real(path, line, one, "t", default=0.0)
        pause_s = 0.0 if before_s is None else max(at_s - before_s, 0.0) * settings.time_scale
        before_s = at_s + real(path, line, one, "api_time", default=0.0)
        prompt = blocks.prompt(listed(path, line, one, "hash_ids"), tokens, f"turn {turn}")
        exact = settings.exact_output is not False
        made = draw.request(0, prompt, output, exact=exact, input_tokens=tokens)
        yield _in_session(made, name, turn, pause_s)


def _spoken(
    settings: WorkloadSettings, draw: Draw, row: Mapping[str, Any], path: Path, line: int
) -> Iterator[Request]:
    if draw.api != "chat":
        raise UsageError(
            f"{path}:{line}: recorded messages need the chat API", hint="set `engine.api: chat`"
        )
    name = str(row.get("id", f"line {line}"))
    for turn, one in enumerate(objects(path, line, row, "turns")):
        output = whole(path, line, one, "output_tokens", least=1)
        messages = objects(path, line, one, "messages")
        if not messages:
            raise UsageError(f"{path}:{line}: turn {turn}: expected a list under `messages`")
        said = salted_messages(messages, draw, name) if settings.salted else tuple(messages)
        made = draw.request(0, "", output, exact=settings.exact_output is True)
        pause_s = real(path, line, one, "delay_s", default=0.0) * settings.time_scale
        yield replace(_in_session(made, name, turn, pause_s), messages=said)


def _in_session(request: Request, name: str, turn: int, pause_s: float) -> Request:
    delay_s = min(pause_s, MAX_PAUSE_S)
    return replace(request, session=name, label=f"turn {turn + 1}", delay_s=delay_s)


DATASETS.add("agentic", Dataset(agentic, needs=("path",), chained=True))
