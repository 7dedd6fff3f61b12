"""What a data set is: settings in, requests out, all randomness from named seeded streams."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from benchx.core.errors import UsageError, suggestion
from benchx.core.registry import Registry
from benchx.serving.request import Api, Request
from benchx.serving.workloads.lengths import Lengths
from benchx.serving.workloads.prompter import Prompt, Prompter

Exact = Callable[[int], Mapping[str, Any]]
"""Request fields that make an engine generate exactly so many tokens (`Engine.exact_length`)."""


@dataclass(frozen=True, kw_only=True)
class WorkloadSettings:
    """What a scenario says under `workload`; each data set uses some of it.

    Attributes:
        dataset: Name of the data set.
        requests: Requests in all; for a file, at most so many.
        input_len: Tokens of a prompt (of the new part, where a prefix is shared).
        output_len: Tokens to generate; None takes what the file says.
        path: File with the data.
        prefix_len: Tokens that the prompts of a group share.
        groups: How many different prefixes.
        sessions: Conversations.
        turns: Requests of each conversation.
        turn_len: New tokens of every turn after the first.
        pause_s: Seconds between an answer and the next turn.
        time_scale: Factor on the times of a trace: 2 is half as fast.
        max_input_len, max_output_len: Longer ones in a file are left out.
        exact_output: Whether every answer has exactly its length; None: as the data set needs.
        salted: Whether a prompt from a file (text, token ids or messages) begins with a salt, which
            differs from point to point.
    """

    dataset: str
    requests: int | None = None
    input_len: Lengths | None = None
    output_len: Lengths | None = None
    path: Path | None = None
    prefix_len: int | None = None
    groups: int = 1
    sessions: int | None = None
    turns: Lengths | None = None
    turn_len: Lengths | None = None
    pause_s: float = 0.0
    time_scale: float = 1.0
    max_input_len: int | None = None
    max_output_len: int | None = None
    exact_output: bool | None = None
    salted: bool = True

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkloadSettings:
        """From plain data; raises UsageError for unknown keys, UnitError for wrong lengths."""
        known = {item.name for item in fields(cls)}
        for key in data:
            if key not in known:
                raise UsageError(f"workload: unknown key {key!r}; {suggestion(key, sorted(known))}")
        plain = dict(data)
        for name in ("input_len", "output_len", "turns", "turn_len"):
            if plain.get(name) is not None and not isinstance(plain[name], Lengths):
                plain[name] = Lengths.of(plain[name])
        if plain.get("path") is not None:
            plain["path"] = Path(plain["path"])
        return cls(**plain)

    def need(self, name: str) -> Any:  # noqa: ANN401 - the field's own type
        """A setting that this data set can't do without; raises UsageError when it is missing."""
        value = getattr(self, name)
        if value is None:
            raise UsageError(f"workload.{name}: missing; data set {self.dataset} needs it")
        return value


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What a data set draws from.

    Attributes:
        seed: Of the scenario.
        salt: Of the point: prompts of two points share no prefix, or a cache would help by
            accident.
        api: Which API the requests are for.
        exact: See `Exact`.
        prompter: Makes prompts; None when nothing here can count tokens.
    """

    seed: int
    salt: str
    api: Api
    exact: Exact
    prompter: Prompter | None

    def stream(self, *names: object) -> random.Random:
        """The generator of that name; equal seeds, salts and names give equal values."""
        text = json.dumps([self.seed, self.salt, *map(str, names)])
        return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))

    def lengths(self, *names: object) -> random.Random:
        """The same without the salt: lengths and times are equal in all points."""
        return Draw(seed=self.seed, salt="", api=self.api, exact=self.exact, prompter=None).stream(
            *names
        )

    def prompts(self) -> Prompter:
        """The prompter; raises UsageError when there is none."""
        if self.prompter is None:
            raise UsageError(
                "prompts of an exact length need token ids or a tokenizer",
                hint="use an engine that takes token ids, or set `engine.tokenizer`",
            )
        return self.prompter

    @property
    def counts(self) -> bool:
        """Whether lengths of prompts are known here and not only at the server."""
        return self.prompter is not None and self.prompter.exact

    def request(
        self,
        index: int,
        prompt: Prompt,
        output_tokens: int,
        *,
        exact: bool,
        input_tokens: int | None = None,
        label: str | None = None,
    ) -> Request:
        """A single request with that prompt."""
        return Request(
            index=index,
            prompt=prompt,
            max_tokens=output_tokens,
            prompt_tokens=input_tokens if self.counts else None,
            extra=dict(self.exact(output_tokens)) if exact else {},
            label=label,
        )


@dataclass(frozen=True)
class Dataset:
    """A kind of data.

    Attributes:
        make: Makes the measured requests of a point, in the order they are sent.
        needs: Settings that it can't do without, as the scenario names them: they are asked for
            before an engine is started.
        turn_needs: What it can't do without besides when a session has more than one turn.
        chained: Whether requests follow one another in sessions: a rate is then one of sessions.
    """

    make: Callable[[WorkloadSettings, Draw], Sequence[Request]]
    needs: tuple[str, ...] = ()
    turn_needs: tuple[str, ...] = ()
    chained: bool = False


DATASETS: Registry[Dataset] = Registry("data set", group="benchx.datasets")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is sent in one point.

    Attributes:
        requests: The measured ones.
        warmup: What is sent before, unmeasured: every class of lengths, and as many as the load has
            under way.
        salted: Whether the same requests of another salt begin otherwise.
        digest: Equal for points whose lengths, times and data are equal (salt excluded).
        notes: What a reader of the figures must know.
    """

    requests: tuple[Request, ...]
    warmup: tuple[Request, ...]
    salted: bool
    digest: str
    notes: tuple[str, ...] = field(default=())
