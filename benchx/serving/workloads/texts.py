"""Texts from a file: `sharegpt` conversations and `custom` prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchx.core.errors import UsageError
from benchx.serving.request import Request
from benchx.serving.workloads.base import DATASETS, Dataset, Draw, WorkloadSettings
from benchx.serving.workloads.files import json_lines, json_list, whole
from benchx.serving.workloads.salting import salted, salted_ids, salted_messages

LEAST_TOKENS, MOST_INPUT, MOST_TOTAL = 4, 1024, 2048
"""What vLLM and SGLang keep of ShareGPT: at least 4 tokens each way, 1024 in, 2048 in all."""


def sharegpt(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """First question and answer of each conversation, in an order drawn from the seed.

    Conversations without them are left out, as are texts that hold half of a character.

    The answer's length is what is asked for, unless `output_len` says otherwise.
    """
    path: Path = settings.need("path")
    prompts, lengths = draw.prompts(), draw.lengths("lengths")
    pairs = list(_pairs(path))
    draw.lengths("order").shuffle(pairs)
    made: list[Request] = []
    for question, answer in pairs:
        if len(made) == settings.requests:
            break
        tokens = prompts.count(question)
        said = prompts.count(answer)
        output = settings.output_len.draw(lengths) if settings.output_len else said
        if _fits(settings, tokens, output):
            text = salted(question, draw, len(made)) if settings.salted else question
            exact = settings.exact_output is True
            made.append(
                draw.request(len(made), text, output, exact=exact, input_tokens=prompts.count(text))
            )
    return enough(made, settings, path)


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    for number, entry in enumerate(json_list(path)):
        turns = entry.get("conversations") if isinstance(entry, Mapping) else None
        if not isinstance(turns, list):
            raise UsageError(f"{path}: entry {number}: expected a list under `conversations`")
        if not all(isinstance(turn, Mapping) for turn in turns[:2]):
            raise UsageError(f"{path}: entry {number}: expected objects in `conversations`")
        said = [turn.get("value") for turn in turns[:2]]
        if len(said) == 2 and all(map(_is_text, said)):
            yield str(said[0]), str(said[1])


def _is_text(value: object) -> bool:
    """Whether it is a text that can be sent: half a character (a lone surrogate) can't."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fits(settings: WorkloadSettings, tokens: int, output: int) -> bool:
    most_in = settings.max_input_len or MOST_INPUT
    most_total = (
        MOST_TOTAL if settings.max_output_len is None else most_in + settings.max_output_len
    )
    return LEAST_TOKENS <= tokens <= most_in and LEAST_TOKENS <= output <= most_total - tokens


def custom(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """JSONL with `prompt` (text or token ids) or `messages`, and maybe `output_tokens`.

    In the order of the file; a file that is too short is an error, never repeated: the second time
    round a prefix cache would answer.
    """
    path: Path = settings.need("path")
    lengths, made = draw.lengths("lengths"), list[Request]()
    for line, row in json_lines(path):
        if len(made) == settings.requests:
            break
        given = whole(path, line, row, "output_tokens", least=1) if "output_tokens" in row else None
        drawn = settings.output_len.draw(lengths) if settings.output_len else None
        output = given or drawn or settings.need("output_len")
        made.append(_custom(settings, draw, row, f"{path}:{line}", len(made), output))
    return enough(made, settings, path)


def _custom(
    settings: WorkloadSettings,
    draw: Draw,
    row: Mapping[str, Any],
    place: str,
    index: int,
    output: int,
) -> Request:
    extra = dict(draw.exact(output)) if settings.exact_output is True else {}
    prompt, messages = row.get("prompt"), row.get("messages")
    if isinstance(messages, list) and all(isinstance(said, dict) for said in messages) and messages:
        said = tuple(messages)
        said = salted_messages(said, draw, index) if settings.salted else said
        return Request(index=index, messages=said, max_tokens=output, extra=extra)
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        ids = salted_ids(prompt, draw, index) if settings.salted else tuple(prompt)
        return Request(
            index=index, prompt=ids, max_tokens=output, extra=extra, prompt_tokens=len(ids)
        )
    if not isinstance(prompt, str) or not prompt:
        raise UsageError(f"{place}: expected `prompt` (text or token ids) or `messages`")
    text = salted(prompt, draw, index) if settings.salted else prompt
    return Request(index=index, prompt=text, max_tokens=output, extra=extra)


def enough(made: list[Request], settings: WorkloadSettings, path: Path) -> list[Request]:
    """The requests; raises UsageError when the file holds fewer than asked for, or none."""
    if not made or (settings.requests is not None and len(made) < settings.requests):
        wanted = "at least one" if settings.requests is None else str(settings.requests)
        raise UsageError(
            f"{path} holds {len(made)} requests that fit; expected {wanted}",
            hint="lower `workload.requests`, or widen max_input_len and max_output_len",
        )
    return made


DATASETS.add("sharegpt", Dataset(sharegpt, needs=("path",)))
DATASETS.add("custom", Dataset(custom, needs=("path",)))
