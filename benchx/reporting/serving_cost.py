"""Cost per million tokens of serving points, and what is missing where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.core.errors import UsageError
from benchx.economics.catalogue import (
    Hardware,
    Price,
    Prices,
    hardware_named,
    hardware_of_device,
)
from benchx.economics.formulas import Cost, costs
from benchx.reporting.serving_facts import Deployment
from benchx.scenario.schema import AUTO

if TYPE_CHECKING:
    import pandas as pd

FORMULA = "gpu_hour"
FORMULA_TEXT = (
    f"cost per million tokens: formula {FORMULA}, price per GPU-hour x 10^6 / "
    "(3600 x tok/s per GPU); each class of tokens is charged the whole hour, so the figures do "
    "not add up"
)
"""Footnote of a table with costs."""

THROUGHPUTS: Mapping[str, str] = {
    "input": metric.INPUT_THROUGHPUT.id,
    "output": metric.OUTPUT_THROUGHPUT.id,
    "total": metric.TOTAL_THROUGHPUT.id,
}
"""Class of tokens -> column of the tokens per second that are charged, in the table's order."""


@dataclass(frozen=True, kw_only=True)
class PointCost:
    """What a point's tokens cost.

    Attributes:
        by_class: Class of tokens -> cost; empty when something is missing.
        basis: The price with tier, date and source, and the GPUs that it is counted for.
        missing: What keeps a figure away; empty when nothing does.
    """

    by_class: Mapping[str, Cost]
    basis: str
    missing: str


@dataclass(frozen=True)
class _Priced:
    """A price, or why there is none."""

    price: Price | None
    title: str = ""
    missing: str = ""


def point_cost(
    row: pd.Series, deployment: Deployment, rates: Mapping[str, str] = THROUGHPUTS
) -> PointCost:
    """Cost of an ok point.

    Args:
        row: Its row; throughputs are of the whole deployment.
        deployment: What it ran on.
        rates: Class of tokens -> column of the tokens per second that are charged.
    """
    if deployment.pricing is None:
        return _without("the scenario asks for none (`cost`)")
    priced = _priced(deployment)
    lacks = [priced.missing] if priced.missing else []
    if not deployment.gpus:
        none = deployment.gpus == 0
        lacks.insert(0, "no GPU was in use" if none else "the number of GPUs is unknown")
    if lacks or priced.price is None:
        return _without("; ".join(lacks))
    price = priced.price
    gpus = f"{deployment.gpus} GPU{'' if deployment.gpus == 1 else 's'}"
    known = {name: row.get(column) for name, column in rates.items()}
    return PointCost(
        by_class=costs(price, known, gpus=deployment.gpus, formula=FORMULA),
        basis=(
            f"{priced.title}: {price.per_gpu_hour:g} {price.currency} per GPU-hour, {price.tier}, "
            f"{price.date}, {price.source}; x {gpus} ({deployment.gpus_source})"
        ),
        missing="",
    )


def _without(missing: str) -> PointCost:
    return PointCost(by_class={}, basis="", missing=f"no cost per token: {missing}")


def _priced(deployment: Deployment) -> _Priced:
    asked, tier = (str((deployment.pricing or {}).get(key)) for key in ("hardware", "prices"))
    try:
        hardware = _observed(deployment) if asked == AUTO else hardware_named(asked)
        price = None if hardware is None else Prices().price(hardware, tier)
    except UsageError as error:
        return _Priced(None, missing=str(error))
    if hardware is None:
        return _Priced(None, missing=_unknown_kind(deployment))
    if price is None:
        return _Priced(None, missing=f"no {tier} price of {hardware.title} is known")
    return _Priced(price, title=hardware.title)


def _observed(deployment: Deployment) -> Hardware | None:
    """The kind of the engine's own GPUs; benchx may run on another machine."""
    names = deployment.gpu_names
    return hardware_of_device(names[0]) if len(names) == 1 else None


def _unknown_kind(deployment: Deployment) -> str:
    names = deployment.gpu_names
    if not names:
        return "the kind of GPU is unknown"
    if len(names) > 1:
        return f"there are several kinds of GPU ({', '.join(names)})"
    return f"{names[0]} is not in the table of hardware"
