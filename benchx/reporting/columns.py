"""The columns of an operator's table, their units, and which go first in a narrow terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.core.units import format_bytes
from benchx.reporting import numbers
from benchx.reporting.frame import words_of
from benchx.reporting.notes import SLOW_SUBMISSION

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        key: Stable name, for tests and sinks.
        heading: Printed heading, unit included.
        numeric: Whether to align to the right.
        legend: What the figures are, for the lines under the table.
    """

    key: str
    heading: str
    numeric: bool = True
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class FigureColumn:
    """A column of figures: which column of the frame it prints, times what, and how."""

    column: Column
    source: str
    text: Callable[[float], str]
    factor: float = 1.0

    def print(self, value: float) -> str:
        """The cell's text for a value of the frame."""
        return self.text(value * self.factor)


def _three(value: float) -> str:
    return numbers.digits(value, 3)


def _bytes(value: float) -> str:
    return numbers.ABSENT if math.isnan(value) else format_bytes(round(value))


DROP_FIRST = (
    "tok_s",
    "kv_gb_s",
    "error",
    "tflop_s",
    "gb_s",
    "n",
    "roofline",
    "interval",
    "call",
)
"""Keys of the columns that a narrow terminal may drop, in that order; the others always stay."""

MODEL_DROP_FIRST = (
    "tok_s",
    "state",
    "cache",
    "error",
    "working",
    "tflop_s",
    "gb_s",
    "n",
    "roofline",
    "interval",
    "call",
    "cost_input",
    "cost_total",
    "cost_output",
    "kv_gb_s",
)
"""The same for a model, which is prefilled for its KV throughput here: that goes last."""

FIGURES = (
    FigureColumn(
        column=Column(
            key="roofline",
            heading="% roof",
            legend="least time by the measured ceilings / device time",
        ),
        source=metric.ROOFLINE.id,
        text=numbers.percent,
    ),
    FigureColumn(
        column=Column(key="tflop_s", heading="TFLOP/s"),
        source=metric.COMPUTE.id,
        text=_three,
    ),
    FigureColumn(
        column=Column(key="gb_s", heading="GB/s", legend="least bytes to be moved / device time"),
        source=metric.BANDWIDTH.id,
        text=_three,
    ),
    FigureColumn(
        column=Column(
            key="kv_gb_s",
            heading="KV GB/s",
            legend="bytes of cache and state left behind / device time",
        ),
        source=metric.KV_THROUGHPUT.id,
        text=_three,
    ),
    FigureColumn(
        column=Column(key="tok_s", heading="tokens/s"),
        source=metric.TOKENS.id,
        text=numbers.thousands,
    ),
    FigureColumn(
        column=Column(
            key="error",
            heading="error",
            legend="rms of the difference from the fp64 reference / rms of the reference",
        ),
        source=metric.RMS_RATIO.id,
        text=numbers.scientific,
    ),
)
"""Of an operator's table, in order."""

_MODEL_FIGURES = (
    FigureColumn(
        column=Column(key="cache", heading="cache", legend="left behind, grows with tokens"),
        source=metric.KV_CACHE.id,
        text=_bytes,
    ),
    FigureColumn(
        column=Column(key="state", heading="state", legend="left behind, constant"),
        source=metric.KV_STATE.id,
        text=_bytes,
    ),
    FigureColumn(
        column=Column(
            key="working",
            heading="working",
            legend="most memory held during a call beyond weights, cache and logits",
        ),
        source=metric.PEAK_MEMORY.id,
        text=_bytes,
    ),
)
"""Of a model's table beside the others."""

_CALL = FigureColumn(
    column=Column(
        key="call",
        heading="call ms",
        legend="one call from Python, until the device is idle",
    ),
    source=metric.CALL_TIME.column("p50"),
    text=_three,
)
"""Shown where a note sends the reader to it."""

_SMALLER: Mapping[str, str] = {"TFLOP/s": "GFLOP/s", "GB/s": "MB/s", "KV GB/s": "KV MB/s"}
"""Heading -> the heading a thousand times smaller, for machines without a GPU."""


def figure_columns(frame: pd.DataFrame) -> tuple[FigureColumn, ...]:
    """The columns for which the frame has a figure, in a unit that suits the largest one."""
    is_model = bool((frame["kind"] == "model").any())
    figures = (*FIGURES, *_MODEL_FIGURES) if is_model else FIGURES
    figures = (_CALL, *figures) if _is_submission_slow(frame) else figures
    return tuple(
        _readable(figure, float(frame[figure.source].max()))
        for figure in figures
        if figure.source in frame and frame[figure.source].notna().any()
    )


def _is_submission_slow(frame: pd.DataFrame) -> bool:
    return any(SLOW_SUBMISSION in words_of(notes) for notes in frame["notes"])


def _readable(figure: FigureColumn, largest: float) -> FigureColumn:
    heading = _SMALLER.get(figure.column.heading)
    if heading is None or largest >= 0.1:
        return figure
    return replace(figure, column=replace(figure.column, heading=heading), factor=1e3)


def legend_lines(columns: Sequence[Column]) -> list[str]:
    """What the figures of these columns are, as one line; none when nothing needs saying."""
    words = [f"{column.heading} = {column.legend}" for column in columns if column.legend]
    return ["; ".join(words)] if words else []
