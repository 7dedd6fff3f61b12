"""Which names belong to the columns of every row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import benchx.ops.catalog  # noqa: F401 - registers
from benchx.core.axes import AxisSpec
from benchx.core.columns import IDENTITY, LISTS, RECORDED, axis_problem
from benchx.core.errors import BenchxError
from benchx.core.metric import METRICS
from benchx.ops.base import OPERATORS, register


@dataclass(frozen=True)
class Named:
    """As much of an operator as its registration looks at."""

    name: str = "somebody's"
    axes: dict[str, AxisSpec] = field(default_factory=dict)


@pytest.mark.parametrize("name", [*IDENTITY, *RECORDED, *LISTS])
def test_no_axis_may_have_the_name_of_a_column(name: str) -> None:
    assert axis_problem(name) is not None


def test_no_axis_may_have_the_name_of_a_metric_or_of_its_statistics() -> None:
    for metric in METRICS:
        assert axis_problem(metric.id) is not None
        assert axis_problem(f"{metric.id}_p50") is not None


def test_the_axes_of_every_operator_have_names_of_their_own() -> None:
    for name in OPERATORS.names():
        assert [axis for axis in OPERATORS.get(name).axes if axis_problem(axis)] == []


def test_an_operator_with_an_axis_named_like_a_column_is_not_registered() -> None:
    operator: Any = Named(axes={"outcome": AxisSpec(type="int", doc="")})
    with pytest.raises(BenchxError, match=r"operator \"somebody's\": an axis can't be named 'outc"):
        register(operator)
    assert operator.name not in OPERATORS.names()
