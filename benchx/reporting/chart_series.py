"""What the colours of a chart stand for: backends, or the values of the one word that varies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.reporting.frame import ok_rows, split_axes
from benchx.reporting.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Series:
    """Rows as a chart draws them.

    Attributes:
        frame: Rows whose column `backend` holds the name of their series.
        note: What the names are, where they are no backends; else empty.
    """

    frame: pd.DataFrame
    note: str = ""


def series_of(frame: pd.DataFrame) -> Series:
    """The rows by backend; those of a single backend by the axis of words that varies, if just one.

    Two patterns of one model in panels of their own can't be compared: in one panel their lines
    cross where one overtakes the other. Rows that differ in the series only share a `group_id`.
    """
    axis = _axis_of_words(frame)
    if axis is None or frame["backend"].nunique() != 1:
        return Series(frame=frame)
    (backend,) = frame["backend"].unique()
    rows = frame.drop(columns=[axis]).assign(backend=frame[axis])
    varying = list(split_axes(rows).varying)
    groups = [" ".join(map(str, values)) for values in rows[varying].itertuples(index=False)]
    if rows.assign(group_id=groups).duplicated(["group_id", "backend"]).any():
        return Series(frame=frame)
    return Series(
        frame=rows.assign(group_id=groups), note=f"Each colour a {axis}; backend: {backend}."
    )


def _axis_of_words(frame: pd.DataFrame) -> str | None:
    """The one varying axis whose values are words; None where there are none or several of them."""
    found = [
        axis
        for axis in split_axes(frame).varying
        if axis != "seqlens" and all(isinstance(value, str) for value in frame[axis])
    ]
    if len(found) != 1 or ok_rows(frame)[found[0]].nunique() < 2:
        return None
    return None if frame[found[0]].nunique() > len(PALETTE) else found[0]
