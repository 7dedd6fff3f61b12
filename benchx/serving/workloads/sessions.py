"""`multi_turn`: conversations whose context grows with every turn, with pauses in between.

The assistant's turns are made up, of exactly the length that was asked for, and sent back instead
of what the server answered: every run and every engine sees the same tokens. A server's cache of
its own output therefore does not match; that of the prompts does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchx.serving.request import Request
from benchx.serving.workloads.base import DATASETS, Dataset, Draw, WorkloadSettings
from benchx.serving.workloads.prompter import Prompt


def multi_turn(settings: WorkloadSettings, draw: Draw) -> Sequence[Request]:
    """`sessions` conversations of `turns` requests; those of one turn stand together."""
    sessions = [
        list(_session(settings, draw, number)) for number in range(settings.need("sessions"))
    ]
    longest = max(map(len, sessions), default=0)
    by_turn = [turns[turn] for turn in range(longest) for turns in sessions if turn < len(turns)]
    limit = settings.requests or len(by_turn)
    return [replace(request, index=index) for index, request in enumerate(by_turn[:limit])]


def _session(settings: WorkloadSettings, draw: Draw, number: int) -> Iterator[Request]:
    lengths = draw.lengths("session", number)
    conversation = Conversation(draw, f"session {number}")
    for turn in range(settings.need("turns").draw(lengths)):
        new = settings.need("input_len" if turn == 0 else "turn_len").draw(lengths)
        output = settings.need("output_len").draw(lengths)
        yield conversation.turn(
            new,
            output,
            exact=settings.exact_output is not False,
            delay_s=settings.pause_s if turn else 0.0,
        )


class Conversation:
    """Grows turn by turn; token counts are of contents, a chat template adds its own.

    Args:
        draw: Where its words come from.
        name: Of the session.
    """

    def __init__(self, draw: Draw, name: str) -> None:
        self._draw, self._name = draw, name
        self._turns = 0
        self._tokens = 0
        self._history: list[Prompt] = []

    def turn(self, new: int, output: int, *, exact: bool, delay_s: float) -> Request:
        """The next request: everything so far and `new` more tokens; then the answer is added."""
        self._turns += 1
        self._say("user", new)
        self._tokens += new
        request = replace(
            self._draw.request(0, "", output, exact=exact, input_tokens=self._tokens),
            session=self._name,
            delay_s=delay_s,
            label=f"turn {self._turns}",
            messages=self._messages() if self._draw.api == "chat" else None,
            prompt="" if self._draw.api == "chat" else self._draw.prompts().join(self._history),
        )
        self._say("assistant", output)
        self._tokens += output
        return request

    def _say(self, who: str, tokens: int) -> None:
        words = self._draw.stream(self._name, self._turns, who)
        self._history.append(self._draw.prompts().make(words, tokens))

    def _messages(self) -> tuple[Mapping[str, Any], ...]:
        """User and assistant in turns, the user first and last."""
        return tuple(
            {"role": "assistant" if place % 2 else "user", "content": content}
            for place, content in enumerate(self._history)
        )


DATASETS.add(
    "multi_turn",
    Dataset(
        multi_turn,
        needs=("sessions", "turns", "input_len", "output_len"),
        turn_needs=("turn_len",),
        chained=True,
    ),
)
