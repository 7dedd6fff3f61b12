"""One pandas frame from finished runs, and what tables and charts ask of it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from benchx.core import metric
from benchx.core.axes import Scalar
from benchx.core.columns import IDENTITY, KV_SOURCE, RECORDED, is_figure
from benchx.core.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

TIME = metric.DEVICE_TIME.column("p50")
TIME_LOW = metric.DEVICE_TIME.column("ci_low")
TIME_HIGH = metric.DEVICE_TIME.column("ci_high")

_NEEDED = (
    TIME, TIME_LOW, TIME_HIGH, metric.ROOFLINE.id, metric.COMPUTE.id, metric.BANDWIDTH.id,
    metric.KV_THROUGHPUT.id, metric.TOKENS.id, metric.RMS_RATIO.id,
)  # fmt: skip


class HasRows(Protocol):
    """What `load_frame` needs of a run."""

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """One mapping per point, the columns of points.parquet."""


@dataclass(frozen=True)
class AxisSplit:
    """The axes of one operator's rows: those that vary, and the one value of each other."""

    varying: tuple[str, ...]
    fixed: Mapping[str, Scalar]


def load_frame(runs: Sequence[HasRows]) -> pd.DataFrame:
    """All rows of the runs in plan order; absent is null (None for words, NaN for figures).

    Columns are those of points.parquet; the identity columns and the metrics that reports print
    exist even when no run has them. Lists of words are tuples, which can be grouped by.
    """
    import pandas as pd

    rows = [
        {name: tuple(cell) if isinstance(cell, list) else cell for name, cell in row.items()}
        for run in runs
        for row in run.rows
    ]
    frame = pd.DataFrame(rows, dtype=object)
    for column in (*IDENTITY, *RECORDED, *_NEEDED):
        if column not in frame.columns:
            frame[column] = None
    figures = [column for column in frame.columns if is_figure(column)]
    words = [column for column in frame.columns if column not in figures]
    frame[words] = frame[words].where(frame[words].notna(), None)
    numbers = {name: pd.to_numeric(frame[name]).astype(float) for name in figures}
    # In one piece: pandas warns of a frame that a hundred columns were put into one by one.
    return frame.assign(**numbers).copy()


def axis_columns(frame: pd.DataFrame) -> tuple[str, ...]:
    """The columns that are axes: whatever is neither identity, recorded fact nor figure."""
    known = {*IDENTITY, *RECORDED, KV_SOURCE}
    return tuple(
        column for column in frame.columns if column not in known and not is_figure(column)
    )


def split_axes(frame: pd.DataFrame) -> AxisSplit:
    """Which axes vary over these rows; axes that no row has are left out."""
    varying, fixed = [], {}
    for axis in axis_columns(frame):
        values = list(dict.fromkeys(frame[axis]))
        if len(values) > 1:
            varying.append(axis)
        elif values and values[0] is not None:
            fixed[axis] = values[0]
    return AxisSplit(
        tuple(_heads_first(varying)), {axis: fixed[axis] for axis in _heads_first(list(fixed))}
    )


def _heads_first(axes: list[str]) -> list[str]:
    """Model width before batch shape, the order in which kernel tables are usually read."""
    order = ("heads", "batch", "seqlens", "prefix", "context", "tokens")
    ranks = {name: rank for rank, name in enumerate(order)}
    return sorted(axes, key=lambda axis: ranks.get(axis, len(order)))


def ok_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows that may carry a figure and have a device time."""
    return frame[(frame["outcome"] == Outcome.OK.value) & frame[TIME].notna()]


def backend_order(frame: pd.DataFrame) -> tuple[str, ...]:
    """Backends in the order in which the runs list them; serving rows have none."""
    return tuple(dict.fromkeys(name for name in frame["backend"] if name is not None))


def fastest(frame: pd.DataFrame) -> frozenset[Hashable]:
    """Index labels of the fastest ok row of each group, and of those it can't be told from.

    A row is as fast as the fastest when their intervals overlap. A group in which a single
    backend is ok has no fastest: there is nothing to compare.
    """
    winners: set[Hashable] = set()
    for _, group in ok_rows(frame).groupby("group_id", sort=False):
        if len(group) < 2:
            continue
        best = group.sort_values(TIME, kind="stable").iloc[0]
        reach = best[TIME] if math.isnan(best[TIME_HIGH]) else best[TIME_HIGH]
        lows = group[TIME_LOW].fillna(group[TIME])
        winners.update(group.index[lows <= reach])
    return frozenset(winners)


def interval_launches(frame: pd.DataFrame) -> int | None:
    """Over how many launches the intervals are, the fewest if that differs; None without any."""
    rows = ok_rows(frame)
    counts = [count for count in rows["launches"][rows[TIME_LOW].notna()] if count is not None]
    return int(min(counts)) if counts else None


def words_of(cell: Iterable[str] | None) -> tuple[str, ...]:
    """The words in a column of lists (`core.columns.LISTS`); none where the cell is empty."""
    return tuple(cell or ())
