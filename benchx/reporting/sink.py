"""The seam for output formats: a sink lays out one finished document."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchx.core.registry import Registry
from benchx.reporting.document import Document

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where a sink writes: a folder that exists, or a console."""

    folder: Path | None = None
    console: Console | None = None

    def need_folder(self) -> Path:
        """The folder; raises ValueError when a sink that writes files was given none."""
        if self.folder is None:
            raise ValueError("this sink writes files and needs a folder")
        return self.folder

    def need_console(self) -> Console:
        """The console; raises ValueError when a sink that prints was given none."""
        if self.console is None:
            raise ValueError("this sink prints and needs a console")
        return self.console


class Sink(Protocol):
    """One output format."""

    name: str

    def write(self, document: Document, destination: Destination) -> tuple[Path, ...]:
        """Lay out the document; returns the files written (none for a console)."""


SINKS: Registry[Sink] = Registry("sink", group="benchx.sinks")


def register_sink(sink: Sink) -> None:
    """Offer a format under its name; a second of the same name is refused."""
    SINKS.add(sink.name, sink)
