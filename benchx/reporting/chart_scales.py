"""Logarithmic axes with plain numbers on their ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis

_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0))
_FEWEST = 4
_CLOSEST = 0.09
"""Smallest distance of labelled ticks, as a share of the axis."""


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers within a positive range: few kinds of steps, but four ticks or more."""
    from matplotlib.ticker import MaxNLocator

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in _STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= _FEWEST:
            return inside
    even = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in even if low <= tick <= high]


def spaced_ticks(places: Sequence[float]) -> list[float]:
    """The places far enough from the one before to be labelled on a logarithmic axis."""
    reach = math.log(max(places) / min(places)) if len(places) > 1 else 0.0
    kept: list[float] = []
    for place in sorted(places):
        if not kept or math.log(place / kept[-1]) >= _CLOSEST * reach:
            kept.append(place)
    return kept


def label_log_axis(axis: Axis, *, above: float = 0.0) -> None:
    """Set round ticks with plain labels (`0.1`, `20`), no exponents.

    Args:
        axis: Its limits must be final.
        above: No tick lies below, where the axis is not to scale.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    ticks = log_ticks(max(low, above), high)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_ticklabels([f"{tick:.6g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())
