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


_FOLDED_WIDTH = 16
"""A column of text may be folded to this width; narrower it can't be read."""


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

    Numbers are right-aligned and never broken: on a terminal too narrow for them, each row is a
    block of lines instead. Lists are joined by commas; None prints as nothing. Without rows there
    are no headings either: `none` is printed.
    """
    if not rows:
        console.print("none")
        return
    cells = [[_cell(value) for value in row.values()] for row in rows]
    right = [
        all(isinstance(value, int | float | None) for value in column)
        for column in zip(*(row.values() for row in rows), strict=True)
    ]
    headings = list(rows[0])
    if not console.is_terminal:
        _print_bare(console, [headings, *cells], right)
    elif _least_width([headings, *cells], right) <= console.width:
        _print_ruled(console, headings, cells, right)
    else:
        _print_blocks(console, headings, cells)


def _least_width(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> int:
    """Columns of a terminal that a ruled table needs: numbers whole, text folded so far at most."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    least = (
        width if is_right else min(width, _FOLDED_WIDTH)
        for width, is_right in zip(widths, right, strict=True)
    )
    return sum(least) + 2 * (len(widths) - 1)


def _print_blocks(
    console: Console, headings: Sequence[str], cells: Sequence[Sequence[str]]
) -> None:
    """Every row as its first cell and, below it, a line for each of the others."""
    from rich.table import Table

    for row in cells:
        console.print(row[0])
        block = Table.grid(padding=(0, 2))
        block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            if cell:
                block.add_row(f"  {heading}", cell)
        console.print(block)


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
            heading,
            justify="right" if is_right else "left",
            overflow="fold",
            no_wrap=is_name or is_right,
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
