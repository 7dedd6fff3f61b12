"""Tables for a terminal, as wide as it allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchx.core.outcome import Outcome
from benchx.reporting.columns import Column, legend_lines
from benchx.reporting.document import Document, RunPart, Section
from benchx.reporting.header import Header
from benchx.reporting.numbers import ratio
from benchx.reporting.sink import Destination, register_sink
from benchx.reporting.table import OperatorTable, Row

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_GAP = 2


class ConsoleSink:
    """Prints headers, one table per operator, footnotes and mean speed-ups."""

    name = "console"

    def write(self, document: Document, destination: Destination) -> tuple[Path, ...]:
        """Print to the destination's console; writes no file."""
        console = destination.need_console()
        for part in document.runs:
            _print_run(part, console)
        return ()


def _print_run(part: RunPart, console: Console) -> None:
    from rich.text import Text

    for line in header_lines(part.header):
        console.print(Text(line, style="yellow" if line.startswith("! ") else ""))
    if not part.sections:
        console.print(Text("no point was measured"))
    for section in part.sections:
        console.print()
        _print_section(section, console)


def header_lines(header: Header) -> list[str]:
    """The run in a few lines; warnings begin with `! `."""
    ceilings = header.ceilings.text() if header.ceilings else "not measured"
    return [
        f"run {header.run_id}, {header.status}, {header.date}",
        f"device: {header.device}",
        f"versions: {header.versions_text()}",
        f"ceilings: {ceilings}",
        *(f"! {warning}" for warning in header.warnings),
    ]


def _print_section(section: Section, console: Console) -> None:
    from rich.text import Text

    table = section.table
    console.print(Text(f"{table.title}: {table.subtitle}", style="bold"))
    console.print(Text(table.caption, style="dim"))
    kept = columns_that_fit(table, console.width)
    console.print(_rich_table(table, kept))
    dropped = [column.heading for column in table.columns if column not in kept]
    tail = [f"not shown at this width: {', '.join(dropped)}"] if dropped else []
    for line in (*legend_lines(kept), *table.footnotes, *tail, *mean_lines(section)):
        console.print(Text(line, style="dim"))


def mean_lines(section: Section) -> list[str]:
    """The geometric means of the speed-ups in one line, and which backends have none and why."""
    words = [
        f"{mean.backend} {ratio(mean.ratio)}x ({mean.groups} of {mean.groups_in_all} inputs)"
        for mean in section.means
    ]
    subject = f"speed-up over {section.baseline}"
    means = [f"{subject}, geometric mean of common inputs: {', '.join(words)}"] if words else []
    names = ", ".join(section.incomparable)
    return [*means, *([f"no {subject}: {names} finished no common input"] if names else [])]


def columns_that_fit(table: OperatorTable, width: int) -> tuple[Column, ...]:
    """As many columns as fit into `width` characters, the most valuable first.

    Axes, backend, outcome and time always stay; the terminal folds them if it must.
    """
    needed = {
        column: max(len(column.heading), *(len(row.cells[index]) for row in table.rows)) + _GAP
        for index, column in enumerate(table.columns)
    }
    droppable = {column.key: column for column in table.columns if column.key in table.drop_first}
    kept = set(table.columns) - set(droppable.values())
    left = width + 1 - sum(needed[column] for column in kept)  # the last column needs half a gap
    for key in reversed(table.drop_first):
        column = droppable.get(key)
        if column is not None and needed[column] <= left:
            kept.add(column)
            left -= needed[column]
    return tuple(column for column in table.columns if column in kept)


def _rich_table(table: OperatorTable, kept: Sequence[Column]) -> Table:
    from rich import box
    from rich.table import Table

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column in kept:
        view.add_column(column.heading, justify="right" if column.numeric else "left")
    places = [table.columns.index(column) for column in kept]
    axes = len(table.axes)
    previous = None
    for row in table.rows:
        is_repeat = row.group_id == previous
        cells = ["" if is_repeat and place < axes else row.cells[place] for place in places]
        view.add_row(*_escaped(cells), style=_style(row))
        previous = row.group_id
    return view


def _escaped(cells: Sequence[str]) -> list[str]:
    from rich.markup import escape

    return [escape(cell) for cell in cells]


def _style(row: Row) -> str:
    if row.is_fastest:
        return "bold green"
    if row.outcome is Outcome.OK:
        return ""
    return "red" if row.outcome.is_failure else "dim"


register_sink(ConsoleSink())
