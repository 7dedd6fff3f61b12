"""A figure to be drawn, and how a section's figures are named and spread over pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class FigurePlan:
    """A figure to be drawn.

    Attributes:
        name: File name without a suffix, unique in the report.
        title: Its heading.
        description: One sentence for those who can't see it.
        build: Draws it; call inside `chart_canvas.themed()`.
    """

    name: str
    title: str
    description: str
    build: Callable[[], Figure]


@dataclass(frozen=True, kw_only=True)
class FigureList:
    """The figures of one section, and a line for each one that has nothing to show."""

    plans: tuple[FigurePlan, ...]
    omissions: tuple[str, ...]


def plan_name(key: str, kind: str, page: int) -> str:
    """`kda-prefill-device-time`, `…-2` for the second page."""
    stem = f"{key.replace('_', '-')}-{kind}"
    return stem if page == 0 else f"{stem}-{page + 1}"


def pages(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The items in pieces of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
