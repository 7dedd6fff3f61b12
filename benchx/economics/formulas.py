"""Cost per million tokens, by formulas that bear a name; the name goes beside every figure.

A formula turns what a deployment costs per GPU and hour, and how many tokens a GPU makes, into a
cost. It is derived when a report is made: a new price needs no new run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchx.core.registry import Registry
from benchx.economics.catalogue import Price

TOKEN_CLASSES = ("total", "input", "output", "uncached_input")
"""What is counted. Each figure charges the whole hour to its class: figures do not add up."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a million tokens cost.

    Attributes:
        per_million: Tokens of the class, in the price's currency.
        currency: ISO 4217.
        token_class: Which tokens were counted.
        formula: Name of the formula.
        price: The price that it rests on.
    """

    per_million: float
    currency: str
    token_class: str
    formula: str
    price: Price

    @property
    def label(self) -> str:
        """For headings: `USD/M output tokens (gpu_hour, rental 2026-07)`."""
        source = f"{self.formula}, {self.price.tier} {self.price.date}"
        return f"{self.currency}/M {self.token_class.replace('_', ' ')} tokens ({source})"


Formula = Callable[[Price, float], float | None]
"""(price, tokens per second and GPU) -> cost per million tokens, None where it is not defined."""

FORMULAS: Registry[Formula] = Registry("cost formula", group="benchx.cost_formulas")


def gpu_hour(price: Price, tok_s_per_gpu: float) -> float | None:
    """Price per GPU-hour x 10^6 / (3600 x tok/s per GPU).

    All GPUs of the deployment count: the throughput is that of the deployment over their number.
    """
    if not math.isfinite(tok_s_per_gpu) or tok_s_per_gpu <= 0:
        return None
    return price.per_gpu_hour * 1e6 / (3600 * tok_s_per_gpu)


FORMULAS.add("gpu_hour", gpu_hour)


def costs(
    price: Price | None,
    throughputs_tok_s: Mapping[str, float | None],
    *,
    gpus: int | None,
    formula: str = "gpu_hour",
) -> Mapping[str, Cost]:
    """Cost by class of tokens; a class without a cost is absent.

    Args:
        price: Of one GPU for one hour; None (unknown) gives no figure at all.
        throughputs_tok_s: Class (`TOKEN_CLASSES`) -> tok/s of the whole deployment.
        gpus: GPUs of the deployment as observed; None or 0 gives no figure.
        formula: Name of a registered formula.

    Raises:
        UsageError: There is no such formula.
        ValueError: A class is not one of `TOKEN_CLASSES`.
    """
    compute = FORMULAS.get(formula)
    unknown = set(throughputs_tok_s) - set(TOKEN_CLASSES)
    if unknown:
        raise ValueError(f"unknown classes of tokens: {', '.join(sorted(unknown))}")
    if price is None or not gpus:
        return {}
    found = {}
    for token_class, tok_s in throughputs_tok_s.items():
        cost = None if tok_s is None else compute(price, tok_s / gpus)
        if cost is not None:
            found[token_class] = Cost(
                per_million=cost,
                currency=price.currency,
                token_class=token_class,
                formula=formula,
                price=price,
            )
    return found
