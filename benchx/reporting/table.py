"""The table of one operator as plain text cells; console and Markdown only lay it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.outcome import Outcome
from benchx.reporting import numbers
from benchx.reporting.columns import (
    DROP_FIRST,
    MODEL_DROP_FIRST,
    Column,
    FigureColumn,
    figure_columns,
)
from benchx.reporting.cost_columns import CostColumns
from benchx.reporting.frame import (
    TIME,
    TIME_HIGH,
    TIME_LOW,
    AxisSplit,
    fastest,
    interval_launches,
    ok_rows,
    split_axes,
    words_of,
)
from benchx.reporting.not_planned import not_planned
from benchx.reporting.notes import Footnotes, note_text
from benchx.reporting.wording import axis_texts, fixed_texts, plain_text, shortened, title_of

if TYPE_CHECKING:
    import pandas as pd

FASTEST_MARK = "*"
_FASTEST = f"{FASTEST_MARK} fastest ok backend of equal inputs"
FASTEST_LEGEND = f"{_FASTEST}; several when their intervals overlap"
NO_INTERVAL = "no interval, it takes three launches: a small difference may be noise"
"""Footnote of a table without intervals."""


MODEL = "model"
"""`kind` of a point of the model level."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One point: texts in the order of the table's columns, and what it deserves of emphasis."""

    cells: tuple[str, ...]
    group_id: str
    outcome: Outcome
    is_fastest: bool


@dataclass(frozen=True, kw_only=True)
class OperatorTable:
    """All rows of one operator in one run.

    Attributes:
        drop_first: Keys of the columns that a narrow terminal may drop, the least valuable first;
            not every table has all of them.
    """

    op: str
    title: str
    subtitle: str
    caption: str
    axes: tuple[str, ...]
    columns: tuple[Column, ...]
    drop_first: tuple[str, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...]


_BACKEND = Column(key="backend", heading="backend", numeric=False)
_OUTCOME = Column(key="outcome", heading="outcome", numeric=False)
_TIME = Column(key="time", heading="ms")
_COUNT = Column(key="n", heading="n", legend="launches x samples in each (~ on average)")


def operator_table(
    frame: pd.DataFrame, costs: CostColumns | None = None, *, cost_note: str = ""
) -> OperatorTable:
    """The table of one operator.

    Args:
        frame: Rows of one operator and one run, at least one.
        costs: Of the points of a model; None: nothing is priced.
        cost_note: What a reader of the costs must know.
    """
    priced = costs or CostColumns({})
    axes = split_axes(frame)
    shown = figure_columns(frame)
    intervals = _interval_columns(frame)
    notes = Footnotes()
    winners = fastest(frame)
    texts = {axis: axis_texts(axis, list(frame[axis])) for axis in axes.varying}
    rows = tuple(
        _row(row, texts, shown, notes, label in winners, bool(intervals), priced)
        for label, row in frame.iterrows()
    )
    legend = [FASTEST_LEGEND if intervals else _FASTEST] if winners else []
    legend += [] if intervals or ok_rows(frame).empty else [NO_INTERVAL]
    op = str(frame["op"].iloc[0])
    return OperatorTable(
        op=op,
        title=_title(frame),
        subtitle="device time, median of launches",
        caption=_caption(frame, axes),
        axes=axes.varying,
        columns=(
            *(Column(key=axis, heading=axis, numeric=_is_number(frame, axis)) for axis in texts),
            *(_BACKEND, _OUTCOME, _TIME, *intervals, _COUNT),
            *(figure.column for figure in shown),
            *priced.columns,
        ),
        drop_first=MODEL_DROP_FIRST if frame["kind"].iloc[0] == MODEL else DROP_FIRST,
        rows=rows,
        footnotes=(
            *legend,
            *priced.lines(),
            *([cost_note] if cost_note and priced.classes else []),
            *(f"{short}: {full}" for short, full in short_forms(frame, axes.varying).items()),
            *not_planned(frame),
            *notes.texts(),
        ),
    )


def short_forms(frame: pd.DataFrame, axes: Sequence[str]) -> dict[str, str]:
    """Short form -> full text, of the values of these axes that are printed shortened."""
    return dict(pair for axis in axes for pair in shortened(list(frame[axis])).items())


def _title(frame: pd.DataFrame) -> str:
    """`KDA prefill`, `Model kimi-linear-48b-a3b, prefill`."""
    first = frame.iloc[0]
    if first["kind"] == MODEL:
        return f"Model {first['op']}, {first['phase']}"
    return title_of(str(first["op"]))


def _interval_columns(frame: pd.DataFrame) -> tuple[Column, ...]:
    launches = interval_launches(frame)
    if launches is None:
        return ()
    return (Column(key="interval", heading="interval", legend=numbers.interval_words(launches)),)


def _is_number(frame: pd.DataFrame, axis: str) -> bool:
    return all(isinstance(value, int | float) for value in frame[axis] if value is not None)


def _row(
    row: pd.Series,
    texts: Mapping[str, Mapping[str, str]],
    shown: tuple[FigureColumn, ...],
    notes: Footnotes,
    is_fastest: bool,
    has_interval: bool,
    priced: CostColumns,
) -> Row:
    outcome = Outcome(row["outcome"])
    is_ok = outcome is Outcome.OK
    axes = [printed[plain_text(row[axis])] for axis, printed in texts.items()]
    name = f"{row['backend']} {FASTEST_MARK}" if is_fastest else str(row["backend"])
    time = numbers.with_interval(*(row[column] for column in (TIME, TIME_LOW, TIME_HIGH)))
    figures = [time.median, *([time.interval] if has_interval else []), count_text(row)]
    figures += [figure.print(row[figure.source]) for figure in shown]
    figures += priced.texts(str(row["point_id"]))
    return Row(
        cells=(
            *axes,
            name,
            " ".join(
                [outcome_text(row, outcome, notes), *priced.marks(str(row["point_id"]), notes)]
            ),
            *(figures if is_ok else [numbers.ABSENT] * len(figures)),
        ),
        group_id=str(row["group_id"]),
        outcome=outcome,
        is_fastest=is_fastest,
    )


def outcome_text(row: pd.Series, outcome: Outcome, notes: Footnotes) -> str:
    """The outcome and the marks of its reason and notes: `ok [1]`."""
    texts = [note_text(note) for note in words_of(row["notes"])]
    if outcome is not Outcome.OK:
        texts.insert(0, f"{outcome.value}: {row['reason'] or 'no reason recorded'}")
    return " ".join([outcome.value, notes.marks(texts)]).rstrip()


def count_text(row: pd.Series) -> str:
    """`3x100`: launches x samples in each, `~` where that is an average."""
    launches, samples = row["launches"], row["samples"]
    if launches is None or samples is None:
        return numbers.ABSENT
    if not launches:
        return numbers.ABSENT
    about = "" if int(samples) % int(launches) == 0 else "~"
    return f"{int(launches)}x{about}{round(int(samples) / int(launches))}"


def _caption(frame: pd.DataFrame, axes: AxisSplit) -> str:
    words = fixed_texts(axes.fixed)
    for column in ("timer", "cache"):
        kinds = sorted({word for cell in frame[column] for word in words_of(cell)})
        words += [f"{column} {'/'.join(kinds)}"] if kinds else []
    return ", ".join(words)


def cell_of(table: OperatorTable, row: Row, key: str) -> str:
    """The text of one cell by its column's key."""
    keys = [column.key for column in table.columns]
    return row.cells[keys.index(key)]
