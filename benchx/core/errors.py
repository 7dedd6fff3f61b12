"""One root exception for everything a user can put right, and the exit codes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """What the `benchx` process returns."""

    OK = 0
    REGRESSION = 1
    USAGE = 2
    NOT_COMPARABLE = 3
    FAILED = 4
    AMBIGUOUS = 5
    INTERRUPTED = 130
    TERMINATED = 143


class BenchxError(Exception):
    """A condition the user can act on: one sentence, one next step, an exit code.

    Args:
        message: Subject, value and expectation in one sentence.
        hint: The next step, if there is one.
    """

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(BenchxError):
    """A command was called in a way that can't work."""


class RunFailed(BenchxError):
    """Something that was asked for did not run."""

    exit_code = ExitCode.FAILED


class StoreError(BenchxError):
    """A run folder can't be read or written (full disk, read-only, not a run)."""

    exit_code = ExitCode.FAILED


class NotComparable(BenchxError):
    """Two results differ in a field that must be equal, or hold too little data."""

    exit_code = ExitCode.NOT_COMPARABLE


@dataclass(frozen=True)
class Location:
    """A place in a scenario file. `line` counts from 1; None when the file as a whole is meant."""

    path: Path
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line is not None else str(self.path)


class ScenarioError(BenchxError):
    """A scenario can't be used: says where, which key, what it got, what was expected.

    Args:
        location: File and line.
        key: Dotted path of the key (`axes.heads`), or None for the file as a whole.
        problem: What is wrong, value included.
        expected: What would have been right.
        nearest: The closest valid word, when the value looks like a misspelling.
    """

    def __init__(
        self,
        location: Location | str,
        *,
        problem: str,
        key: str | None = None,
        expected: str | None = None,
        nearest: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.location, self.key = location, key
        self.problem, self.expected, self.nearest = problem, expected, nearest
        text = f"{location}: {_printable(key)}: {problem}" if key else f"{location}: {problem}"
        if expected:
            text += f"; expected {expected}"
        if nearest:
            text += f"; did you mean {nearest!r}?"
        super().__init__(text, hint=hint)


def _printable(key: str) -> str:
    """A key may hold line ends and control characters (quoted, or in a `--set`); a line may not."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in key)


def unknown_word(
    noun: str, got: str, known: Iterable[str], *, hint: str | None = None
) -> UsageError:
    """The error for a word that is none of `known`: names the nearest one, or else all of them.

    Args:
        noun: What the word should have named ("operator").
        got: The word.
        known: The words that would have been right, in the order in which to show them.
        hint: The next step, if there is one.
    """
    return UsageError(f"unknown {noun} {got!r}; {suggestion(got, known)}", hint=hint)


def suggestion(got: str, known: Iterable[str]) -> str:
    """The end of an error about a word: `did you mean 'sdpa'?`, or else all words known."""
    words = list(known)
    near = nearest_word(got, words)
    return f"did you mean {near!r}?" if near else f"known: {', '.join(words)}"


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to `word`, or None when none is close."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None
