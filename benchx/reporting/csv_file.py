"""Every column of every point as CSV, unrounded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchx.core.columns import IDENTITY, LISTS, RECORDED, is_figure
from benchx.reporting.document import Document
from benchx.reporting.frame import axis_columns, words_of
from benchx.reporting.sink import Destination, register_sink

FILE_NAME = "points.csv"


class CsvSink:
    """Writes points.csv: identity, axes, figures, how measured; absent is an empty cell."""

    name = "csv"

    def write(self, document: Document, destination: Destination) -> tuple[Path, ...]:
        """Write the file into the destination's folder."""
        frame = document.frame
        figures = [name for name in frame.columns if is_figure(name) and name not in RECORDED]
        columns = [*IDENTITY, *axis_columns(frame), *figures, *RECORDED]
        path = destination.need_folder() / FILE_NAME
        texts = {name: frame[name].map(_listed) for name in columns if name in LISTS}
        frame[columns].assign(**texts).to_csv(path, index=False, lineterminator="\n")
        return (path,)


def _listed(cell: Iterable[str] | None) -> str | None:
    """`a; b`: one cell for the words of a list."""
    return "; ".join(words_of(cell)) or None


register_sink(CsvSink())
