"""From the settings of a point to its requests, its warm-up and its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from benchx.core.errors import UsageError
from benchx.serving.request import Api, Request
from benchx.serving.workloads import (  # noqa: F401 - registers the data sets
    agentic,
    sessions,
    synthetic,
    texts,
    traces,
)
from benchx.serving.workloads.base import (
    DATASETS,
    Dataset,
    Draw,
    Exact,
    Workload,
    WorkloadSettings,
)
from benchx.serving.workloads.openings import opening
from benchx.serving.workloads.prompter import Prompter

WARMUP_TOKENS = 32
"""Most tokens that a warm-up request generates: enough to be decoded beside the others."""

MOST_SHAPES = 16
_COMPARED = 4
"""Requests, sessions and groups of two salts that are compared."""

_CHARACTERS_PER_TOKEN = 4


def build_workload(
    settings: Mapping[str, Any] | WorkloadSettings,
    *,
    seed: int,
    salt: str,
    api: Api,
    exact: Exact,
    prompter: Prompter | None,
    at_once: int = 1,
) -> Workload:
    """The requests of one point.

    Args:
        settings: What the scenario says under `workload` (plain data will do).
        seed: Of the scenario.
        salt: Of the point and the attempt: no two of them may share a prefix.
        api: Which API the requests are for.
        exact: Fields that make the engine generate an exact number of tokens.
        prompter: Makes prompts; None when nothing here can count tokens.
        at_once: Requests that the load has under way: so many warm up.

    Raises:
        UsageError: A setting is missing or wrong, or a file does not hold what it should.
    """
    if not isinstance(settings, WorkloadSettings):
        settings = WorkloadSettings.from_json(settings)
    draw = Draw(seed=seed, salt=salt, api=api, exact=exact, prompter=prompter)
    dataset = DATASETS.get(settings.dataset)
    turns = 1 if settings.turns is None else settings.turns.high
    for name in (*dataset.needs, *(dataset.turn_needs if turns > 1 else ())):
        settings.need(name)
    requests = tuple(dataset.make(settings, draw))
    if not requests:
        raise UsageError(f"workload: data set {settings.dataset} gives no request")
    if api == "chat" and any(isinstance(one.prompt, tuple) and one.prompt for one in requests):
        raise UsageError(
            "token ids can't be sent to the chat API", hint="`engine.api: completions`"
        )
    is_salted = salts_matter(dataset, settings, draw, len(requests))
    return Workload(
        requests=requests,
        warmup=warmup_for(requests, draw, at_once),
        salted=is_salted,
        digest=digest(settings, seed, requests),
        notes=_notes(requests, is_salted=is_salted),
    )


def salts_matter(dataset: Dataset, settings: WorkloadSettings, draw: Draw, count: int) -> bool:
    """Whether the first requests of two salts begin otherwise, as made and not as set.

    Args:
        dataset: Makes them.
        settings: Of the workload.
        draw: Of one salt.
        count: Requests that there are.
    """
    few = replace(
        settings,
        requests=min(count, _COMPARED),
        sessions=min(settings.sessions or _COMPARED, _COMPARED),
        groups=min(settings.groups, _COMPARED),
    )
    one = dataset.make(few, draw)
    other = dataset.make(few, replace(draw, salt=f"{draw.salt} other"))
    return all(opening(a) != opening(b) for a, b in zip(one, other, strict=True))


def warmup_for(requests: Sequence[Request], draw: Draw, at_once: int) -> tuple[Request, ...]:
    """Requests of every class of prompt lengths (powers of two), with prompts of their own.

    Args:
        requests: The measured ones.
        draw: Where the words come from.
        at_once: Requests that the load has under way: at least so many.
    """
    shapes: dict[int, Request] = {}
    for request in requests:
        shapes.setdefault(_tokens(request).bit_length(), request)
    chosen = sorted(shapes.values(), key=_tokens)[-MOST_SHAPES:]
    streams = len({one.index if one.session is None else one.session for one in requests})
    count = max(len(chosen), min(at_once, streams))
    return tuple(
        _warmup(draw, index, like) for index, like in zip(range(count), cycle(chosen), strict=False)
    )


def _warmup(draw: Draw, index: int, like: Request) -> Request:
    tokens = _tokens(like)
    rng = draw.stream("warmup", index)
    if draw.prompter is not None:
        prompt = draw.prompter.make(rng, tokens)
    else:
        prompt = " ".join(f"{rng.getrandbits(16):04x}" for _ in range(max(tokens // 2, 1)))
    made = draw.request(index, prompt, min(like.max_tokens, WARMUP_TOKENS), exact=True)
    return replace(made, label="warmup")


def _tokens(request: Request) -> int:
    """Tokens of a prompt, estimated from its letters when nobody counted them."""
    if request.prompt_tokens is not None:
        return request.prompt_tokens
    if request.messages is not None:
        letters = sum(len(str(message.get("content", ""))) for message in request.messages)
    else:
        letters = len(request.prompt)
    return max(letters // _CHARACTERS_PER_TOKEN, 1)


def digest(settings: WorkloadSettings, seed: int, requests: Sequence[Request]) -> str:
    """Hash of what makes two workloads the same load: lengths, times, sessions, not the words.

    The contents of a file are in it; its path and the salt of the point are not.
    """
    plain = {name: value for name, value in asdict(settings).items() if name != "path"}
    shape = [
        (_tokens(one) if one.prompt_tokens is not None else None, one.max_tokens,
         one.intended_at_s, one.session, one.delay_s, sorted(one.extra))
        for one in requests
    ]  # fmt: skip
    text = json.dumps([plain, seed, shape], sort_keys=True, default=str).encode()
    return hashlib.sha256(text + _content_hash(settings.path)).hexdigest()[:16]


def _content_hash(path: Path | None) -> bytes:
    """Hash of a file's bytes, or of none, without holding them all: traces may have gigabytes."""
    if path is None:
        return hashlib.sha256().digest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _notes(requests: Sequence[Request], *, is_salted: bool) -> tuple[str, ...]:
    notes = []
    if not is_salted:
        notes.append("unsalted: a prefix cache may know these prompts from another point")
    if any(request.prompt_tokens is None for request in requests):
        notes.append(
            "prompt lengths are approximate: nothing here counts as the server does "
            "(pip install tokenizers, or name engine.tokenizer)"
        )
    return tuple(notes)
