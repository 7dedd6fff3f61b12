"""Backends that the plan leaves out at some of the inputs, so that their absence is no riddle."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def not_planned(frame: pd.DataFrame) -> tuple[str, ...]:
    """`fla, chunked: not asked for at 14 of 16 combinations of inputs`, one line a number.

    Args:
        frame: Rows of one operator and one run: every point of its plan has a row.
    """
    groups = int(frame["group_id"].nunique())
    names: dict[int, list[Hashable]] = {}
    for name, rows in frame.groupby("backend", sort=False):
        lacking = groups - int(rows["group_id"].nunique())
        if lacking:
            names.setdefault(lacking, []).append(name)
    inputs = "combinations of inputs"
    return tuple(
        f"{', '.join(map(str, some))}: not asked for at {lacking} of {groups} {inputs}"
        for lacking, some in names.items()
    )
