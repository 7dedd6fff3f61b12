"""Prompts of exactly so many tokens, as token ids or as text that was counted again."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from benchx.core.errors import RunFailed, UsageError
from benchx.serving.engines.base import Capabilities, EngineSettings
from benchx.serving.engines.readiness import root_url
from benchx.serving.request import Api, Endpoint
from benchx.serving.workloads.tokenizing import FileTokenizer, ServerTokenizer, Tokenizer

Prompt = str | tuple[int, ...]

ID_LOW, ID_HIGH = 1000, 32000
"""Ids that are ordinary tokens in every vocabulary in use: special ones sit at either end."""

_WORDS = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an
they which one you were all her she there would their we him been has when who will no more if out
so up said what its about than into them can only other time new some could these two may first then
do any like my now over such our man me even most made after also did many before must through back
years where much your way well down should because long each just state people too little very good
make world still see own work men day get here
"""
COMMON_WORDS = tuple(_WORDS.split())

_ROUNDS = 50


class Prompter(Protocol):
    """Makes prompts. All randomness comes from the `rng` that is passed in.

    Attributes:
        exact: Whether lengths are exact; if not, they are near what was asked for, and only the
            server can say what they are.
    """

    exact: bool

    def make(self, rng: random.Random, tokens: int, *, after: Prompt | None = None) -> Prompt:
        """A prompt of exactly `tokens` tokens that begins with `after`, a prompt of this kind.

        Raises:
            UsageError: `after` is longer than that already.
        """

    def join(self, parts: Sequence[Prompt]) -> Prompt:
        """Prompts one after the other."""

    def count(self, prompt: Prompt) -> int:
        """Tokens of a prompt."""


class IdPrompter:
    """Token ids: exact by construction, no tokenizer needed.

    Args:
        low: Smallest id.
        high: Largest id, excluded; the vocabulary must be larger.
    """

    exact = True

    def __init__(self, low: int = ID_LOW, high: int = ID_HIGH) -> None:
        if not 0 <= low < high:
            raise UsageError(f"token ids from {low} to {high}: expected 0 <= low < high")
        self._low, self._high = low, high

    def make(self, rng: random.Random, tokens: int, *, after: Prompt | None = None) -> Prompt:
        """See `Prompter.make`."""
        start = _ids(after)
        if len(start) > tokens:
            raise _too_long(len(start), tokens)
        more = rng.choices(range(self._low, self._high), k=tokens - len(start))
        return (*start, *more)

    def join(self, parts: Sequence[Prompt]) -> Prompt:
        """See `Prompter.join`."""
        return tuple(token for part in parts for token in _ids(part))

    def count(self, prompt: Prompt) -> int:
        """See `Prompter.count`."""
        return len(_ids(prompt))


class TextPrompter:
    """Words of one token each, counted as a whole and corrected until the count is exact.

    Args:
        tokenizer: Counts as the server will.
    """

    exact = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words = list(tokenizer.words())
        if not self._words:
            raise RunFailed("the tokenizer has no word that is one token: exact text is impossible")

    def make(self, rng: random.Random, tokens: int, *, after: Prompt | None = None) -> Prompt:
        """See `Prompter.make`."""
        start = _text(after)
        words = rng.choices(self._words, k=max(tokens - self._length(start), 0))
        for _ in range(_ROUNDS):
            text = start + "".join(words)
            excess = self._tokenizer.count(text) - tokens
            if excess == 0:
                return text
            if excess > 0 and not words:
                raise _too_long(tokens + excess, tokens)
            if excess > 0:
                del words[-excess:]
            else:
                words += rng.choices(self._words, k=-excess)
        raise RunFailed(f"no text of exactly {tokens} tokens was found with this tokenizer")

    def join(self, parts: Sequence[Prompt]) -> Prompt:
        """See `Prompter.join`."""
        return "".join(_text(part) for part in parts)

    def count(self, prompt: Prompt) -> int:
        """See `Prompter.count`."""
        return self._tokenizer.count(_text(prompt))

    def _length(self, text: str) -> int:
        return self._tokenizer.count(text) if text else 0


class WordPrompter:
    """Common English words, each one token in nearly every vocabulary: lengths are approximate.

    For hosted services whose tokenizer is not here. The server's usage tells the true length.
    """

    exact = False

    def make(self, rng: random.Random, tokens: int, *, after: Prompt | None = None) -> Prompt:
        """See `Prompter.make`; a word counts as a token."""
        start = _text(after)
        missing = tokens - self.count(start)
        if missing < 0:
            raise _too_long(self.count(start), tokens)
        return start + "".join(f" {word}" for word in rng.choices(COMMON_WORDS, k=missing))

    def join(self, parts: Sequence[Prompt]) -> Prompt:
        """See `Prompter.join`."""
        return "".join(_text(part) for part in parts)

    def count(self, prompt: Prompt) -> int:
        """Words."""
        return len(_text(prompt).split())


def prompter_for(settings: EngineSettings, able: Capabilities, endpoint: Endpoint) -> Prompter:
    """The most exact way that an engine and an API allow: ids, counted text, or plain words.

    Args:
        settings: Of the engine, as prepared (`model` is the folder that is served).
        able: What the engine can do.
        endpoint: Where it answers.

    Raises:
        UsageError: `engine.tokenizer` names a folder without a tokenizer that can be read.
    """
    folder = Path(settings.tokenizer or str(settings.model))
    if endpoint.api == "completions" and able.token_ids:
        return _id_prompter(Path(str(settings.model)))
    here = (folder / "tokenizer.json").is_file() and find_spec("tokenizers") is not None
    if able.tokenize_path is not None and not here:
        url = root_url(endpoint.base_url, able.tokenize_path)
        return TextPrompter(ServerTokenizer(endpoint, url))
    if here or settings.tokenizer is not None:
        return TextPrompter(FileTokenizer(folder))
    return WordPrompter()


def check_tokenizer(settings: EngineSettings, able: Capabilities, api: Api) -> None:
    """Read the tokenizer that a scenario names, where prompts will be counted with it.

    Raises:
        UsageError: `engine.tokenizer` names a folder without a tokenizer that can be read.
    """
    by_ids = api == "completions" and able.token_ids
    if settings.tokenizer is not None and not by_ids and able.tokenize_path is None:
        FileTokenizer(Path(settings.tokenizer))


def _id_prompter(folder: Path) -> IdPrompter:
    """Ids within the vocabulary, where the model's config.json tells its size."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return IdPrompter()
    size = (config.get("text_config") or config).get("vocab_size")
    if not isinstance(size, int) or size >= ID_HIGH:
        return IdPrompter()
    return IdPrompter(size // 8, size)


def _ids(prompt: Prompt | None) -> tuple[int, ...]:
    if isinstance(prompt, str):
        raise UsageError("text can't be joined to token ids")
    return prompt or ()


def _text(prompt: Prompt | None) -> str:
    if isinstance(prompt, tuple):
        raise UsageError("token ids can't be joined to text")
    return prompt or ""


def _too_long(there: int, wanted: int) -> UsageError:
    return UsageError(f"a prompt of {wanted} tokens can't begin with {there} tokens")
