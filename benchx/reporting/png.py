"""Figures as PNG for pages and SVG for print."""

from __future__ import annotations

from pathlib import Path

from benchx.reporting.chart_canvas import themed, write_figure
from benchx.reporting.document import Document
from benchx.reporting.figures import plan_figures
from benchx.reporting.sink import Destination, register_sink

FOLDER = "figures"


class PngSink:
    """Writes figures/NAME.png and figures/NAME.svg."""

    name = "png"

    def write(self, document: Document, destination: Destination) -> tuple[Path, ...]:
        """Draw and write every figure that has something to show."""
        folder = destination.need_folder() / FOLDER
        written: list[Path] = []
        for section in document.sections:
            for plan in plan_figures(section, document.styles).plans:
                folder.mkdir(exist_ok=True)
                with themed():
                    written += write_figure(plan.build(), folder / plan.name, plan.description)
        return tuple(written)


register_sink(PngSink())
