"""The columns of an operator's table, their units, and which go first in a narrow terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchx.core.units import format_bytes
from benchx.reporting import numbers

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        key: Stable name, for tests and sinks.
        heading: Printed heading, unit included.
        keep: In a narrow terminal, columns with the largest number are kept; None always stays.
        numeric: Whether to align to the right.
        legend: What the figures are, for the lines under the table.
    """

    key: str
    heading: str
    keep: int | None = None
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


# Order of value in a narrow terminal: the interval (8), the share of the roofline (7), n (6), the
# rates that follow from the time (5, 4), then error (3), KV throughput (2) and tokens/s (1).
_FIGURES = (
    FigureColumn(
        column=Column(
            key="roofline",
            heading="% roof",
            keep=7,
            legend="least time by the measured ceilings / device time",
        ),
        source="roofline_share",
        text=numbers.percent,
    ),
    FigureColumn(
        column=Column(key="tflop_s", heading="TFLOP/s", keep=4),
        source="compute_tflop_s",
        text=_three,
    ),
    FigureColumn(
        column=Column(
            key="gb_s", heading="GB/s", keep=5, legend="least bytes to be moved / device time"
        ),
        source="bandwidth_gb_s",
        text=_three,
    ),
    FigureColumn(
        column=Column(
            key="kv_gb_s",
            heading="KV GB/s",
            keep=2,
            legend="bytes of cache and state left behind / device time",
        ),
        source="kv_throughput_gb_s",
        text=_three,
    ),
    FigureColumn(
        column=Column(key="tok_s", heading="tokens/s", keep=1),
        source="token_throughput_tok_s",
        text=numbers.thousands,
    ),
    FigureColumn(
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

_MODEL_FIGURES = (
    FigureColumn(
        column=Column(
            key="cache", heading="cache", keep=2, legend="left behind, grows with tokens"
        ),
        source="kv_cache_bytes",
        text=_bytes,
    ),
    FigureColumn(
        column=Column(key="state", heading="state", keep=2, legend="left behind, constant"),
        source="kv_state_bytes",
        text=_bytes,
    ),
    FigureColumn(
        column=Column(
            key="working",
            heading="working",
            keep=3,
            legend="most memory held during a call beyond weights, cache and logits",
        ),
        source="peak_memory_bytes",
        text=_bytes,
    ),
)
"""Of a model's table beside the others."""

_KV_OF_MODEL = 100
"""Before everything that may go, costs included."""

_SMALLER: Mapping[str, str] = {"TFLOP/s": "GFLOP/s", "GB/s": "MB/s", "KV GB/s": "KV MB/s"}
"""Heading -> the heading a thousand times smaller, for machines without a GPU."""


def figure_columns(frame: pd.DataFrame) -> tuple[FigureColumn, ...]:
    """The columns for which the frame has a figure, in a unit that suits the largest one."""
    is_model = bool((frame["kind"] == "model").any())
    figures = (*map(_valued_by_model, _FIGURES), *_MODEL_FIGURES) if is_model else _FIGURES
    return tuple(
        _readable(figure, float(frame[figure.source].max()))
        for figure in figures
        if figure.source in frame and frame[figure.source].notna().any()
    )


def _valued_by_model(figure: FigureColumn) -> FigureColumn:
    """KV throughput is what a model is prefilled for here: a narrow terminal drops it last."""
    if figure.column.key != "kv_gb_s":
        return figure
    return replace(figure, column=replace(figure.column, keep=_KV_OF_MODEL))


def _readable(figure: FigureColumn, largest: float) -> FigureColumn:
    heading = _SMALLER.get(figure.column.heading)
    if heading is None or largest >= 0.1:
        return figure
    return replace(figure, column=replace(figure.column, heading=heading), factor=1e3)


def legend_lines(columns: Sequence[Column]) -> list[str]:
    """What the figures of these columns are, as one line; none when nothing needs saying."""
    words = [f"{column.heading} = {column.legend}" for column in columns if column.legend]
    return ["; ".join(words)] if words else []
