"""From the settings of a point to its requests, its warm-up and its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
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
from benchx.serving.workloads.base import DATASETS, Draw, Exact, Workload, WorkloadSettings
from benchx.serving.workloads.prompter import Prompter

WARMUP_TOKENS = 8
"""Tokens that a warm-up request generates: enough for decode kernels to be compiled."""

MOST_SHAPES = 16
_CHARACTERS_PER_TOKEN = 4


def build_workload(
    settings: Mapping[str, Any] | WorkloadSettings,
    *,
    seed: int,
    salt: str,
    api: Api,
    exact: Exact,
    prompter: Prompter | None,
) -> Workload:
    """The requests of one point.

    Args:
        settings: What the scenario says under `workload` (plain data will do).
        seed: Of the scenario.
        salt: Of the point (its id and launch): no two points may share a prefix.
        api: Which API the requests are for.
        exact: Fields that make the engine generate an exact number of tokens.
        prompter: Makes prompts; None when nothing here can count tokens.

    Raises:
        UsageError: A setting is missing or wrong, or a file does not hold what it should.
    """
    if not isinstance(settings, WorkloadSettings):
        settings = WorkloadSettings.from_json(settings)
    draw = Draw(seed=seed, salt=salt, api=api, exact=exact, prompter=prompter)
    dataset = DATASETS.get(settings.dataset)
    for name in dataset.needs:
        settings.need(name)
    requests = tuple(dataset.make(settings, draw))
    if not requests:
        raise UsageError(f"workload: data set {settings.dataset} gives no request")
    if api == "chat" and any(isinstance(one.prompt, tuple) and one.prompt for one in requests):
        raise UsageError(
            "token ids can't be sent to the chat API", hint="`engine.api: completions`"
        )
    return Workload(
        requests=requests,
        warmup=warmup_for(requests, draw),
        digest=digest(settings, seed, requests),
        notes=_notes(settings, requests),
    )


def warmup_for(requests: Sequence[Request], draw: Draw) -> tuple[Request, ...]:
    """One request per class of prompt lengths (powers of two), with prompts of their own."""
    shapes: dict[int, int] = {}
    for request in requests:
        tokens = _tokens(request)
        shapes.setdefault(tokens.bit_length(), tokens)
    chosen = sorted(shapes.values())[-MOST_SHAPES:]
    return tuple(_warmup(draw, index, tokens) for index, tokens in enumerate(chosen))


def _warmup(draw: Draw, index: int, tokens: int) -> Request:
    rng = draw.stream("warmup", index)
    if draw.prompter is not None:
        prompt = draw.prompter.make(rng, tokens)
    else:
        prompt = " ".join(f"{rng.getrandbits(16):04x}" for _ in range(max(tokens // 2, 1)))
    made = draw.request(index, prompt, WARMUP_TOKENS, exact=True)
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


def _notes(settings: WorkloadSettings, requests: Sequence[Request]) -> tuple[str, ...]:
    notes = []
    if settings.path is not None and not settings.salted:
        notes.append("unsalted: a prefix cache may know these prompts from another point")
    if any(request.prompt_tokens is None for request in requests):
        notes.append(
            "prompt lengths are approximate: nothing here counts as the server does "
            "(pip install tokenizers, or name engine.tokenizer)"
        )
    return tuple(notes)
