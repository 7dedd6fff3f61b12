"""Where output goes: data to stdout, everything else to stderr, and no colour unless wanted."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 1000
"""Columns of a console that is no terminal: a table in a file or a pipe is never folded."""


def stdout() -> Console:
    """The console for data."""
    return _console(sys.stdout, is_stderr=False)


def stderr() -> Console:
    """The console for progress and notes."""
    return _console(sys.stderr, is_stderr=True)


def _console(stream: TextIO, *, is_stderr: bool) -> Console:
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            """Let `app.main` see what happened; Rich would exit with 1."""
            self.quiet = True
            raise BrokenPipeError

    width = None if stream.isatty() else PIPE_WIDTH
    return Plain(stderr=is_stderr, highlight=False, emoji=False, markup=False, width=width)


def print_rows(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print mappings of equal keys as a table: ruled on a terminal, bare columns in a pipe.

    Numbers are right-aligned; lists are joined by commas; None prints as nothing. Without rows
    there are no headings either: `none` is printed.
    """
    if not rows:
        console.print("none")
        return
    cells = [[_cell(value) for value in row.values()] for row in rows]
    right = [
        all(isinstance(value, int | float | None) for value in column)
        for column in zip(*(row.values() for row in rows), strict=True)
    ]
    if console.is_terminal:
        _print_ruled(console, list(rows[0]), cells, right)
    else:
        _print_bare(console, [list(rows[0]), *cells], right)


def _print_ruled(
    console: Console,
    headings: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[bool],
) -> None:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, (heading, is_right) in enumerate(zip(headings, right, strict=True)):
        widest = max(len(heading), *(len(row[place]) for row in cells))
        is_name = place == 0 and widest <= console.width // 2  # a name is not broken in two
        made.add_column(
            heading, justify="right" if is_right else "left", overflow="fold", no_wrap=is_name
        )
    for row in cells:
        made.add_row(*row)
    console.print(made)


def _print_bare(console: Console, lines: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        words = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ]
        console.print("  ".join(words).rstrip(), soft_wrap=True)


def _cell(value: Any) -> str:  # noqa: ANN401 - any plain data
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def print_json(data: Any) -> None:  # noqa: ANN401 - any plain data
    """Print plain data as JSON on stdout; NaN has no place in it."""
    print(json.dumps(data, indent=2, allow_nan=False, default=str))


def complain(message: str, hint: str | None = None) -> None:
    """Say what is wrong in one line of stderr, and the next step, if there is one, in a second."""
    from rich.text import Text

    console = stderr()
    lines = [("error: ", "bold red", message)] + ([("hint: ", "dim", hint)] if hint else [])
    for word, style, text in lines:
        line = Text.assemble((word, style), " ".join(text.split("\n")))
        console.print(line, soft_wrap=True)
