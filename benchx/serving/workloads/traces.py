"""Timed traces: `mooncake`, `burstgpt`, `azure`. Times are kept or stretched by `time_scale`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from benchx.core.errors import UsageError
from benchx.serving.request import Request
from benchx.serving.workloads.base import DATASETS, Dataset, Draw, WorkloadSettings
from benchx.serving.workloads.blocks import Blocks
from benchx.serving.workloads.files import csv_rows, json_lines, listed, real, whole
from benchx.serving.workloads.texts import enough

MOONCAKE_BLOCK_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """One line of a trace.

    Attributes:
        at_s: When, on the clock of the trace.
        input_tokens: Tokens of the prompt.
        output_tokens: Tokens that were generated.
        hashes: Blocks of the prompt; empty when the trace has none.
    """

    at_s: float
    input_tokens: int
    output_tokens: int
    hashes: tuple[object, ...] = ()


def mooncake(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """JSONL of `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (512 tokens each)."""
    path: Path = settings.need("path")
    arrivals = (_mooncake_line(path, line, row) for line, row in json_lines(path))
    return _requests(settings, draw, arrivals, path)


def _mooncake_line(path: Path, line: int, row: Mapping[str, Any]) -> Arrival:
    return Arrival(
        at_s=real(path, line, row, "timestamp") / 1000,
        input_tokens=whole(path, line, row, "input_length"),
        output_tokens=whole(path, line, row, "output_length"),
        hashes=tuple(listed(path, line, row, "hash_ids")),
    )


def burstgpt(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """CSV of `Timestamp` (s), `Request tokens`, `Response tokens`; failures (0 tokens) left out."""
    path: Path = settings.need("path")
    columns = ("Timestamp", "Request tokens", "Response tokens")
    arrivals = (
        Arrival(
            at_s=real(path, line, row, columns[0]),
            input_tokens=whole(path, line, row, columns[1]),
            output_tokens=whole(path, line, row, columns[2]),
        )
        for line, row in csv_rows(path, columns)
    )
    return _requests(settings, draw, arrivals, path)


def azure(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """CSV of `TIMESTAMP` (date and time), `ContextTokens`, `GeneratedTokens`."""
    path: Path = settings.need("path")
    columns = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    arrivals = (
        Arrival(
            at_s=_moment(path, line, row[columns[0]]),
            input_tokens=whole(path, line, row, columns[1]),
            output_tokens=whole(path, line, row, columns[2]),
        )
        for line, row in csv_rows(path, columns)
    )
    return _requests(settings, draw, arrivals, path)


def _requests(
    settings: WorkloadSettings, draw: Draw, arrivals: Iterable[Arrival], path: Path
) -> Sequence[Request]:
    if not settings.time_scale > 0:
        raise UsageError(f"workload.time_scale: got {settings.time_scale}; expected above 0")
    fitting = islice(_fitting(settings, arrivals), settings.requests)
    blocks, made = Blocks(draw, MOONCAKE_BLOCK_TOKENS), list[Request]()
    first_s: float | None = None
    for index, one in enumerate(sorted(fitting, key=lambda arrival: arrival.at_s)):
        first_s = one.at_s if first_s is None else first_s
        prompt = blocks.prompt(one.hashes, one.input_tokens, f"request {index}")
        request = draw.request(
            index,
            prompt,
            one.output_tokens,
            exact=settings.exact_output is not False,
            input_tokens=one.input_tokens,
        )
        at_s = (one.at_s - first_s) * settings.time_scale
        made.append(replace(request, intended_at_s=at_s))
    return enough(made, settings, path)


def _fitting(settings: WorkloadSettings, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    most_in, most_out = settings.max_input_len, settings.max_output_len
    for one in arrivals:
        has_work = one.input_tokens > 0 and one.output_tokens > 0
        short = most_in is None or one.input_tokens <= most_in
        if has_work and short and (most_out is None or one.output_tokens <= most_out):
            yield one


def _moment(path: Path, line: int, text: str) -> float:
    """Seconds since 1970; a time without a zone is UTC, as are those of the published traces.

    One file may hold both: `str` of a time in pandas leaves out a fraction that is zero, so no
    part of a time may decide how another is read.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{path}:{line}: got {text!r}; expected a date and time") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


DATASETS.add("mooncake", Dataset(mooncake, needs=("path",)))
DATASETS.add("burstgpt", Dataset(burstgpt, needs=("path",)))
DATASETS.add("azure", Dataset(azure, needs=("path",)))
