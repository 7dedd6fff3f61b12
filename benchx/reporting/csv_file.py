"""Every column of every point as CSV, unrounded."""

from __future__ import annotations

from pathlib import Path

from benchx.reporting.document import Document
from benchx.reporting.frame import IDENTITY, RECORDED, axis_columns, is_figure
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
        frame[columns].to_csv(path, index=False, lineterminator="\n")
        return (path,)


register_sink(CsvSink())
