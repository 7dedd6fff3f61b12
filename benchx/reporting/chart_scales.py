"""Logarithmic axes with plain numbers on their ticks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis

_STEPS = (
    (1.0,),
    (1.0, 3.0),
    (1.0, 2.0, 5.0),
    (1.0, 2.0, 3.0, 5.0),
    (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0),
)
_FEWEST, _MOST = 4, 9
_REACH = 0.2
"""Farthest that the ends of an axis lie from a tick, as a share of it."""

_TIGHT = 0.05
_EVEN = (8, 6, 12)
"""Most steps of ticks at even distances, for axes too short for a kind of step; the last gives four
ticks in any range."""

_CLOSEST = 0.09
"""Smallest distance of labelled ticks, as a share of the axis."""


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers within a positive range: few kinds of steps, but four ticks or more.

    Both ends have a tick near by where a kind of step allows for it: what lies beyond the last one
    can't be read.
    """
    found = [ticks for ticks in _candidates(low, high) if len(ticks) >= _FEWEST]
    good = (ticks for ticks in found if _is_readable(ticks, low, high))
    return next(good, found[0] if found else _candidates(low, high)[-1])


def _candidates(low: float, high: float) -> list[list[float]]:
    """Ticks within the range, from few kinds of steps to many, then at even distances."""
    from matplotlib.ticker import MaxNLocator

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    stepped = [[step * 10.0**decade for decade in decades for step in steps] for steps in _STEPS]
    even = [MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high) for most in _EVEN]
    return [[float(tick) for tick in ticks if low <= tick <= high] for ticks in (*stepped, *even)]


def _is_readable(ticks: Sequence[float], low: float, high: float) -> bool:
    """Whether no end is far from a tick and no two ticks stand on each other."""
    places = [math.log(tick / low) / math.log(high / low) for tick in ticks]
    gaps = [after - before for before, after in itertools.pairwise(places)]
    is_wide = places[0] <= _REACH and places[-1] >= 1 - _REACH
    return is_wide and len(ticks) <= _MOST and min(gaps) >= _TIGHT


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
