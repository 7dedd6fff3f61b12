"""Counting tokens of text: by the model's tokenizer.json, or by asking the server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from benchx.core.errors import RunFailed, UsageError
from benchx.serving.exchange import post
from benchx.serving.request import Endpoint

MOST_WORDS = 4096
_WORD_TOKEN = re.compile(
    r"[\u0120\u2581]([A-Za-z]{2,})"
)  # a space as byte-level BPE and others put it
_LETTERS = tuple(f" {letter}" for letter in "abcdefghijklmnopqrstuvwxyz")


class Tokenizer(Protocol):
    """Counts tokens as the server will."""

    def count(self, text: str) -> int:
        """Tokens of a prompt, those that the tokenizer puts around it included."""

    def words(self) -> Sequence[str]:
        """Pieces of text, each with its leading space, that add one token each."""


class FileTokenizer:
    """The tokenizer in a model's folder.

    Args:
        folder: Holds `tokenizer.json`.

    Raises:
        UsageError: There is none, it can't be read, or the package is not installed.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UsageError(
                f"there is no tokenizer.json in {folder}",
                hint="name its folder in `engine.tokenizer`, or send token ids",
            )
        try:
            from tokenizers import Tokenizer as Fast
        except ImportError as error:
            raise UsageError(
                "prompts of an exact length need a tokenizer", hint="pip install tokenizers"
            ) from error
        self._fast: Any = Fast.from_file(str(path))
        self._fast.no_truncation()
        self._fast.no_padding()

    def count(self, text: str) -> int:
        """See `Tokenizer.count`."""
        return len(self._fast.encode(text).ids)

    def words(self) -> Sequence[str]:
        """Entries of the vocabulary that are one lower- or upper-case word."""
        vocabulary: dict[str, int] = self._fast.get_vocab()
        known = sorted(vocabulary, key=vocabulary.__getitem__)
        words = [f" {found[1]}" for token in known if (found := _WORD_TOKEN.fullmatch(token))]
        return one_token_each(self, words[:MOST_WORDS])


class ServerTokenizer:
    """The server's own `/tokenize` (vLLM and llama.cpp).

    Args:
        endpoint: The server.
        url: Full address of its tokenizer.
    """

    def __init__(self, endpoint: Endpoint, url: str) -> None:
        self._endpoint, self._url = endpoint, url

    def count(self, text: str) -> int:
        """See `Tokenizer.count`; raises RunFailed when the server does not tell."""
        body = {"model": self._endpoint.model, "prompt": text, "content": text}
        answer = post(self._url, body, timeout_s=60, endpoint=self._endpoint)
        told = answer.json()
        if not answer.ok or not isinstance(told, dict) or "tokens" not in told:
            raise RunFailed(f"{self._url} does not count tokens: {answer.summary()}")
        return len(told["tokens"])

    def words(self) -> Sequence[str]:
        """Single letters: each word costs a question, and letters are enough to be different."""
        return one_token_each(self, _LETTERS)


def one_token_each(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[str, ...]:
    """Those words that add exactly one token to a text that ends with another word."""
    base = tokenizer.count(" a")
    return tuple(word for word in words if tokenizer.count(f" a{word}") == base + 1)
