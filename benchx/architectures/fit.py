"""Measured prefills as a curve: time as a quadratic of the tokens, and the exponent of growth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchx.architectures.tiers import PrefillModel

_T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}
"""Two-sided 95 % quantiles of Student's t; for more degrees of freedom that of 9, 2.262."""


@dataclass(frozen=True, kw_only=True)
class Exponent:
    """p of time ~ tokens^p over a range of lengths, with its 95 % interval (None: two lengths)."""

    value: float
    low: float | None
    high: float | None


def fitted_exponent(seconds: Mapping[int, float]) -> Exponent | None:
    """Least squares on logarithms; None with fewer than two lengths.

    Args:
        seconds: Tokens -> measured time.
    """
    if len(seconds) < 2:
        return None
    x = np.log(np.array(list(seconds), dtype=float))
    y = np.log(np.array(list(seconds.values()), dtype=float))
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    left = y - y.mean() - slope * centred
    free = len(seconds) - 2
    if free == 0:
        return Exponent(value=slope, low=None, high=None)
    error = math.sqrt(float(left @ left) / free / float(centred @ centred))
    half = _T_95.get(free, 2.262) * error
    return Exponent(value=slope, low=slope - half, high=slope + half)


def fitted_prefill(seconds: Mapping[int, float], *, source: str) -> PrefillModel:
    """Non-negative `fixed + linear T + quadratic T^2`, each length weighted by its own time.

    Three lengths or fewer fit fewer terms: one gives a line through zero, two a line.

    Args:
        seconds: Tokens -> measured time; at least one.
        source: Where they were measured.
    """
    tokens = np.array(list(seconds), dtype=float)
    times = np.array(list(seconds.values()), dtype=float)
    chosen: list[int] = {1: [1], 2: [0, 1]}.get(len(tokens), [0, 1, 2])
    while True:
        found = _weighted(tokens, times, chosen)
        negative = [power for power, value in zip(chosen, found, strict=True) if value < 0]
        if not negative or chosen == [1]:
            break
        chosen = [power for power in chosen if power not in negative] or [1]
    values = dict(zip(chosen, found, strict=True))
    return PrefillModel(
        fixed_s=values.get(0, 0.0),
        linear_s=values.get(1, 0.0),
        quadratic_s=values.get(2, 0.0),
        source=source,
    )


def _weighted(tokens: np.ndarray, times: np.ndarray, powers: Sequence[int]) -> list[float]:
    columns = np.stack([tokens**power for power in powers], axis=1) / times[:, None]
    found = np.linalg.lstsq(columns, np.ones_like(times), rcond=None)[0]
    return [float(value) for value in found]
