"""Columns of cost per million tokens, for any table of points: headings, cells and footnotes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchx.reporting import numbers
from benchx.reporting.columns import Column
from benchx.reporting.notes import Footnotes
from benchx.reporting.serving_cost import FORMULA_TEXT, THROUGHPUTS, PointCost


@dataclass(frozen=True)
class CostColumns:
    """What the points of one table cost.

    Attributes:
        costs: Point id -> cost, for the ok points that may have one.
    """

    costs: Mapping[str, PointCost]

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes of tokens of which some point has a cost."""
        known = {name for one in self.costs.values() for name in one.by_class}
        return tuple(name for name in THROUGHPUTS if name in known)

    @property
    def columns(self) -> tuple[Column, ...]:
        """One for each class."""
        return tuple(self._column(name) for name in self.classes)

    def texts(self, point: str) -> list[str]:
        """A point's cells."""
        return [self._text(point, name) for name in self.classes]

    def marks(self, point: str, notes: Footnotes) -> list[str]:
        """A mark for the price only where the points differ in it."""
        cost = self.costs.get(point)
        return [notes.mark(_basis(cost))] if cost and len(self._bases()) > 1 else []

    def lines(self) -> list[str]:
        """The formula, and what holds for all points."""
        lines = [FORMULA_TEXT] if any(one.by_class for one in self.costs.values()) else []
        bases = self._bases()
        return [*lines, *(bases if len(bases) == 1 else [])]

    def _column(self, name: str) -> Column:
        short = {"input": "in", "output": "out"}.get(name, name)
        found = (one.by_class[name] for one in self.costs.values() if name in one.by_class)
        currency = "/".join(sorted({cost.currency for cost in found}))
        return Column(key=f"cost_{name}", heading=f"{currency}/M {short}")

    def _text(self, point: str, name: str) -> str:
        cost = self.costs.get(point)
        found = cost.by_class.get(name) if cost else None
        return numbers.ABSENT if found is None else numbers.digits(found.per_million, 3)

    def _bases(self) -> list[str]:
        return list(dict.fromkeys(_basis(cost) for cost in self.costs.values()))


def _basis(cost: PointCost) -> str:
    """The price behind a figure, or what is missing."""
    return cost.missing or f"price of {cost.basis}"
