"""Where one curve of times crosses another: from which length on the cheaper one changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """Two curves over the same lengths.

    Attributes:
        at: Lengths where they cross, each between two measured ones, in order; empty: nowhere.
        first_ratio: other / one at the shortest common length: above 1, `one` is faster there.
        last_ratio: The same at the longest.
        shortest, longest: Those lengths.
    """

    at: tuple[float, ...]
    first_ratio: float
    last_ratio: float
    shortest: int
    longest: int


def crossover(one: Mapping[int, float], other: Mapping[int, float]) -> Crossover | None:
    """All crossings, by straight lines between logarithms; None: no two common lengths.

    Args:
        one: Length -> time.
        other: Length -> time.
    """
    common = sorted(set(one) & set(other))
    if len(common) < 2:
        return None
    gaps = [(length, math.log(other[length] / one[length])) for length in common]
    at: list[float] = []
    for (left, before), (right, after) in pairwise(gaps):
        if before == after or before * after > 0:
            continue
        share = before / (before - after)
        at.append(left * (right / left) ** share)
    return Crossover(
        at=tuple(dict.fromkeys(at)),  # at a measured length two neighbours find the same one
        first_ratio=math.exp(gaps[0][1]),
        last_ratio=math.exp(gaps[-1][1]),
        shortest=common[0],
        longest=common[-1],
    )
