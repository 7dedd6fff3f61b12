"""Speed-ups over one backend, point by point, and their geometric mean."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.reporting.frame import TIME, TIME_HIGH, TIME_LOW, backend_order, ok_rows
from benchx.stats.summary import geometric_mean

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
    """Geometric mean of a backend's speed-ups, see `mean_speed_ups`.

    Attributes:
        groups: Over how many groups it runs.
        groups_in_all: All groups of the operator.
    """

    backend: str
    baseline: str
    ratio: float
    groups: int
    groups_in_all: int


def choose_baseline(frame: pd.DataFrame) -> str | None:
    """The first backend, in the order of the plan, that is ok anywhere; None without any.

    The order is the scenario's, so a point that fails in one run and not in the next does not
    change what the others are compared with.
    """
    measured = set(ok_rows(frame)["backend"])
    return next((name for name in backend_order(frame) if name in measured), None)


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
    frame: pd.DataFrame, found: Sequence[SpeedUp], *, baseline: str
) -> tuple[MeanSpeedUp, ...]:
    """Geometric means per backend, in order of first appearance.

    Backends that the plan asks for at the same groups have their means over the same groups:
    those at which all of them have a speed-up. Means over the groups that each happened to finish
    would compare different work. Backends without a group in common have none.

    Args:
        frame: Rows of one operator and one run, failed ones included.
        found: `speed_ups` of that frame.
        baseline: The backend whose speed counts as 1.
    """
    ratios: dict[str, dict[str, float]] = {}
    for one in found:
        ratios.setdefault(one.backend, {})[one.group_id] = one.ratio
    asked = {name: frozenset(frame["group_id"][frame["backend"] == name]) for name in ratios}
    means = []
    for backend, of_group in ratios.items():
        equals = [set(ratios[name]) for name in ratios if asked[name] == asked[backend]]
        common = sorted(set.intersection(*equals))
        if common:
            means.append(
                MeanSpeedUp(
                    backend=backend,
                    baseline=baseline,
                    ratio=geometric_mean([of_group[group] for group in common]),
                    groups=len(common),
                    groups_in_all=int(frame["group_id"].nunique()),
                )
            )
    return tuple(means)
