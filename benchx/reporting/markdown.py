"""report.md: tables, figures, environment and everything that did not give a figure."""

from __future__ import annotations

from pathlib import Path

from benchx.core.outcome import Outcome
from benchx.reporting.columns import legend_lines
from benchx.reporting.console import mean_lines
from benchx.reporting.csv_file import FILE_NAME as CSV_NAME
from benchx.reporting.document import Document, Section
from benchx.reporting.figures import plan_figures
from benchx.reporting.png import FOLDER
from benchx.reporting.sink import Destination, register_sink
from benchx.reporting.table import OperatorTable

FILE_NAME = "report.md"


class MarkdownSink:
    """Writes report.md; figures are linked where the png sink puts them."""

    name = "markdown"

    def write(self, document: Document, destination: Destination) -> tuple[Path, ...]:
        """Write the file into the destination's folder."""
        path = destination.need_folder() / FILE_NAME
        path.write_text(markdown(document), encoding="utf-8")
        return (path,)


def markdown(document: Document) -> str:
    """The text of report.md."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("benchx.reporting"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    template = environment.get_template("report.md.j2")
    return template.render(
        runs=document.runs,
        csv=CSV_NAME,
        figures=FOLDER,
        table=markdown_table,
        legend=legend_lines,
        means=mean_lines,
        failures=failure_lines,
        plan=lambda section: plan_figures(section, document.styles),
        cell=_cell,
    )


def markdown_table(table: OperatorTable) -> str:
    """All columns; the fastest backend of each group in bold."""
    headings = [column.heading for column in table.columns]
    keys = [column.key for column in table.columns]
    rules = ["--:" if column.numeric else ":--" for column in table.columns]
    lines = [_line(headings), _line(rules)]
    for row in table.rows:
        cells = [_cell(text) for text in row.cells]
        if row.is_fastest:
            name = keys.index("backend")
            cells[name] = f"**{cells[name]}**"
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: object) -> str:
    """Text that can stand in a table cell: no pipe, no line break, no accidental emphasis."""
    plain = " ".join(str(text).split())
    for mark in ("\\", "|", "*", "_", "`", "<"):
        plain = plain.replace(mark, f"\\{mark}")
    return plain


def failure_lines(section: Section) -> list[str]:
    """`fla, unsupported (3 points): reason` for every reason that kept a figure away."""
    counts: dict[tuple[str, str, str], int] = {}
    for _, row in section.frame.iterrows():
        if row["outcome"] != Outcome.OK.value:
            reason = str(row["reason"] or "no reason recorded")
            key = (str(row["backend"] or row["engine"]), str(row["outcome"]), reason)
            counts[key] = counts.get(key, 0) + 1
    return [
        f"{backend}, {outcome} ({count} point{'s' if count > 1 else ''}): {_cell(reason)}"
        for (backend, outcome, reason), count in counts.items()
    ]


register_sink(MarkdownSink())
