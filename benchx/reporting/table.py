"""The table of one operator as plain text cells; console and Markdown only lay it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.outcome import Outcome
from benchx.reporting import numbers
from benchx.reporting.frame import (
    TIME,
    TIME_HIGH,
    TIME_LOW,
    AxisSplit,
    fastest,
    note_list,
    split_axes,
)
from benchx.reporting.notes import Footnotes, note_text
from benchx.reporting.wording import distinct_texts, plain_text, shortened, title_of, value_text

if TYPE_CHECKING:
    import pandas as pd

FASTEST_MARK = "*"
FASTEST_LEGEND = (
    f"{FASTEST_MARK} fastest ok backend of equal inputs; several when their 95 % intervals overlap"
)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        key: Stable name, for tests and sinks.
        heading: Printed heading, unit included.
        keep: Columns with the smallest number go first when the terminal is narrow; None stays.
        numeric: Whether to align to the right.
        legend: What the figures are, for the lines under the table.
    """

    key: str
    heading: str
    keep: int | None = None
    numeric: bool = True
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One point: texts in the order of the table's columns, and what it deserves of emphasis."""

    cells: tuple[str, ...]
    group_id: str
    outcome: Outcome
    is_fastest: bool


@dataclass(frozen=True, kw_only=True)
class OperatorTable:
    """All rows of one operator in one run."""

    op: str
    title: str
    caption: str
    axes: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Figure:
    column: Column
    source: str
    text: Callable[[float], str]


def _three(value: float) -> str:
    return numbers.digits(value, 3)


# Dropped first to last when a terminal is narrow: tokens/s follows from the time, KV throughput
# and error matter to fewer readers, then the rates, which follow from time and caption.
_FIGURES = (
    _Figure(
        column=Column(
            key="roofline",
            heading="% roof",
            keep=7,
            legend="least time by the measured ceilings / device time",
        ),
        source="roofline_share",
        text=numbers.percent,
    ),
    _Figure(
        column=Column(key="tflop_s", heading="TFLOP/s", keep=4),
        source="compute_tflop_s",
        text=_three,
    ),
    _Figure(
        column=Column(
            key="gb_s", heading="GB/s", keep=5, legend="least bytes to be moved / device time"
        ),
        source="bandwidth_gb_s",
        text=_three,
    ),
    _Figure(
        column=Column(
            key="kv_gb_s",
            heading="KV GB/s",
            keep=2,
            legend="bytes of cache and state left behind / device time",
        ),
        source="kv_throughput_gb_s",
        text=_three,
    ),
    _Figure(
        column=Column(key="tok_s", heading="tokens/s", keep=1),
        source="token_throughput_tok_s",
        text=numbers.thousands,
    ),
    _Figure(
        column=Column(
            key="error",
            heading="error",
            keep=3,
            legend="rms of the difference from the fp64 reference / rms of the reference",
        ),
        source="rms_ratio",
        text=numbers.scientific,
    ),
)
_BACKEND = Column(key="backend", heading="backend", numeric=False)
_OUTCOME = Column(key="outcome", heading="outcome", numeric=False)
_TIME = Column(key="time", heading="ms")
_INTERVAL = Column(key="interval", heading="95 % interval", keep=8)
_COUNT = Column(key="n", heading="n", keep=6, legend="launches x samples in each")


def operator_table(frame: pd.DataFrame) -> OperatorTable:
    """The table of one operator.

    Args:
        frame: Rows of one operator and one run, at least one.
    """
    axes = split_axes(frame)
    shown = tuple(figure for figure in _FIGURES if frame[figure.source].notna().any())
    notes = Footnotes()
    winners = fastest(frame)
    texts = {axis: distinct_texts(list(frame[axis])) for axis in axes.varying}
    rows = tuple(
        _row(row, texts, shown, notes, label in winners) for label, row in frame.iterrows()
    )
    long_values = [pair for axis in axes.varying for pair in shortened(list(frame[axis])).items()]
    legend = [FASTEST_LEGEND] if winners else []
    op = str(frame["op"].iloc[0])
    return OperatorTable(
        op=op,
        title=title_of(op),
        caption=_caption(frame, axes),
        axes=axes.varying,
        columns=(
            *(Column(key=axis, heading=axis, numeric=_is_number(frame, axis)) for axis in texts),
            *(_BACKEND, _OUTCOME, _TIME, _INTERVAL, _COUNT),
            *(figure.column for figure in shown),
        ),
        rows=rows,
        footnotes=(*legend, *(f"{short}: {full}" for short, full in long_values), *notes.texts()),
    )


def _is_number(frame: pd.DataFrame, axis: str) -> bool:
    return all(isinstance(value, int | float) for value in frame[axis] if value is not None)


def _row(
    row: pd.Series,
    texts: Mapping[str, Mapping[str, str]],
    shown: tuple[_Figure, ...],
    notes: Footnotes,
    is_fastest: bool,
) -> Row:
    outcome = Outcome(row["outcome"])
    is_ok = outcome is Outcome.OK
    axes = [printed[plain_text(row[axis])] for axis, printed in texts.items()]
    name = f"{row['backend']} {FASTEST_MARK}" if is_fastest else str(row["backend"])
    time = numbers.with_interval(*(row[column] for column in (TIME, TIME_LOW, TIME_HIGH)))
    figures = [time.median, time.interval, _count(row)]
    figures += [figure.text(row[figure.source]) for figure in shown]
    return Row(
        cells=(
            *axes,
            name,
            _outcome_text(row, outcome, notes),
            *(figures if is_ok else [numbers.ABSENT] * len(figures)),
        ),
        group_id=str(row["group_id"]),
        outcome=outcome,
        is_fastest=is_fastest,
    )


def _outcome_text(row: pd.Series, outcome: Outcome, notes: Footnotes) -> str:
    texts = [note_text(note) for note in note_list(row["notes"])]
    if outcome is not Outcome.OK:
        texts.insert(0, f"{outcome.value}: {row['reason'] or 'no reason recorded'}")
    return " ".join([outcome.value, *(notes.mark(text) for text in texts)])


def _count(row: pd.Series) -> str:
    launches, samples = row["launches"], row["samples"]
    if launches is None or samples is None:
        return numbers.ABSENT
    each, rest = divmod(int(samples), int(launches)) if launches else (0, 1)
    return f"{int(launches)}x{each}" if not rest else f"{int(samples)} in {int(launches)}"


def _caption(frame: pd.DataFrame, axes: AxisSplit) -> str:
    words = [f"{axis} {value_text(value)}" for axis, value in axes.fixed.items()]
    for column in ("timer", "cache"):
        kinds = sorted({str(value) for value in frame[column] if value is not None})
        words += [f"{column} {'/'.join(kinds)}"] if kinds else []
    return ", ".join(words)


def cell_of(table: OperatorTable, row: Row, key: str) -> str:
    """The text of one cell by its column's key."""
    keys = [column.key for column in table.columns]
    return row.cells[keys.index(key)]


def legend_lines(columns: Sequence[Column]) -> list[str]:
    """What the figures of these columns are, as one line; none when nothing needs saying."""
    words = [f"{column.heading} = {column.legend}" for column in columns if column.legend]
    return ["; ".join(words)] if words else []
