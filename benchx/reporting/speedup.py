"""Speed-ups over one backend, point by point, and their geometric mean."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.reporting.frame import TIME, TIME_HIGH, TIME_LOW, backend_order, ok_rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class SpeedUp:
    """How much faster one backend was than the baseline at one group of equal inputs.

    Attributes:
        row: Index label of the backend's row in the frame.
        ratio: Baseline's median device time / this backend's; above 1 is faster.
        low, high: Ratio of the outer ends of the two intervals (wider than a joint interval of
            the same level); None when either has none.
    """

    row: Hashable
    group_id: str
    backend: str
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class MeanSpeedUp:
    """Geometric mean of a backend's speed-ups, over the groups where both were ok."""

    backend: str
    baseline: str
    ratio: float
    groups: int
    groups_in_all: int


def choose_baseline(frame: pd.DataFrame) -> str | None:
    """The backend that is ok in most groups, the first listed one of equals; None without any."""
    counts = ok_rows(frame).groupby("backend", sort=False)["group_id"].nunique()
    listed = [name for name in backend_order(frame) if name in counts.index]
    return max(listed, key=lambda name: int(counts[name]), default=None)


def speed_ups(frame: pd.DataFrame, baseline: str) -> tuple[SpeedUp, ...]:
    """Every other backend against `baseline`, where both are ok on equal inputs.

    Args:
        frame: Rows of one operator and one run.
        baseline: The backend whose speed counts as 1.
    """
    measured = ok_rows(frame)
    base_rows = measured[measured["backend"] == baseline].drop_duplicates("group_id")
    base_of = {row["group_id"]: row for _, row in base_rows.iterrows()}
    found = []
    for label, row in measured[measured["backend"] != baseline].iterrows():
        base = base_of.get(row["group_id"])
        if base is not None:
            found.append(_speed_up(label, row, base))
    return tuple(found)


def _speed_up(label: Hashable, row: pd.Series, base: pd.Series) -> SpeedUp:
    ends = [float(side[name]) for side in (row, base) for name in (TIME_LOW, TIME_HIGH)]
    known = not any(math.isnan(end) for end in ends) and min(ends) > 0
    return SpeedUp(
        row=label,
        group_id=str(row["group_id"]),
        backend=str(row["backend"]),
        ratio=float(base[TIME] / row[TIME]),
        low=float(base[TIME_LOW] / row[TIME_HIGH]) if known else None,
        high=float(base[TIME_HIGH] / row[TIME_LOW]) if known else None,
    )


def mean_speed_ups(
    found: Sequence[SpeedUp], *, baseline: str, groups_in_all: int
) -> tuple[MeanSpeedUp, ...]:
    """Geometric means per backend, in order of first appearance."""
    ratios: dict[str, list[float]] = {}
    for one in found:
        ratios.setdefault(one.backend, []).append(one.ratio)
    return tuple(
        MeanSpeedUp(
            backend=backend,
            baseline=baseline,
            ratio=math.exp(math.fsum(map(math.log, values)) / len(values)),
            groups=len(values),
            groups_in_all=groups_in_all,
        )
        for backend, values in ratios.items()
    )
