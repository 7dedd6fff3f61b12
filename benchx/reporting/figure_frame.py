"""What is drawn of a section, and the lines around each of its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.reporting.chart_canvas import Frame
from benchx.reporting.document import Section, unmeasured
from benchx.reporting.frame import interval_launches
from benchx.reporting.model_part import part_note
from benchx.reporting.not_planned import not_planned
from benchx.reporting.numbers import interval_words
from benchx.reporting.table import short_forms
from benchx.reporting.theme import Style
from benchx.reporting.wording import plain_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A section as its figures draw it.

    Attributes:
        section: Its header, table and speed-ups.
        frame: Its rows; the column `backend` holds the name of each row's series.
        styles: Series -> style.
        note: What the names of the series are, where they are no backends; else empty.
    """

    section: Section
    frame: pd.DataFrame
    styles: Mapping[str, Style]
    note: str = ""

    @property
    def what(self) -> str:
        """What the figures are of: the title of the table."""
        return self.section.table.title


def frame_of(drawing: Drawing, title: str, shown: Sequence[pd.DataFrame], *more: str) -> Frame:
    """The lines around a figure of medians with intervals.

    Args:
        drawing: What the figure belongs to.
        title: The question.
        shown: The rows in it.
        more: Further notes; empty ones are left out.
    """
    import pandas as pd

    left_out = "; ".join(not_planned(pd.concat(shown)))
    notes = (
        points_note(drawing.frame),
        *more,
        *subject_notes(drawing, shown),
        short_forms_note(drawing, shown),
        missing_note(shown),
        f"{left_out}." if left_out else "",
    )
    return frame_with(drawing, title, *notes)


def frame_with(drawing: Drawing, title: str, *notes: str) -> Frame:
    """A frame with these notes, without the empty ones, and the section's source."""
    kept = tuple(note for note in notes if note)
    return Frame(title=title, notes=kept, source=drawing.section.header.source_line())


def subject_notes(drawing: Drawing, shown: Sequence[pd.DataFrame]) -> tuple[str, ...]:
    """What the series are, and what part of a model ran."""
    return (drawing.note, *part_note(cell for rows in shown for cell in rows["notes"]))


def short_forms_note(drawing: Drawing, shown: Sequence[pd.DataFrame]) -> str:
    """What the shortened lengths of these rows stand for; empty where there are none."""
    axes = drawing.section.table.axes
    there = {
        plain_text(value)
        for rows in shown
        for axis in axes
        if axis in rows.columns
        for value in rows[axis]
    }
    forms = short_forms(drawing.section.frame, axes).items()
    told = "; ".join(f"{short}: {full}" for short, full in forms if full in there)
    return f"{told}." if told else ""


def missing_note(shown: Sequence[pd.DataFrame]) -> str:
    """Which series have points without a figure, and what became of them; empty without any."""
    missing = "; ".join(unmeasured(shown))
    return f"Without a figure: {missing}." if missing else ""


def points_note(frame: pd.DataFrame) -> str:
    """What points and bars are."""
    return f"Points: medians over the launches. {bars_note(frame)}"


def bars_note(frame: pd.DataFrame) -> str:
    """What the bars are, or why there are none."""
    launches = interval_launches(frame)
    if launches is None:
        return "No bars: an interval takes three launches."
    return f"Bars: {interval_words(launches)}; hidden where smaller than the point."
