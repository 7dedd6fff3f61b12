"""Every metric says its unit, direction and formula, once."""

from __future__ import annotations

import pytest

from benchx.core.errors import BenchxError
from benchx.core.metric import METRICS, OFFERED_RATE, Direction, Metric

SUFFIXES: dict[str, str | tuple[str, ...]] = {
    "ms": "_ms",
    "s": "_s",
    "TFLOP/s": "_tflop_s",
    "GB/s": "_gb_s",
    "Gbit/s": "_gbit_s",
    "tok/s": "_tok_s",
    "req/s": "_req_s",
    "tok": "_tokens",
    "requests": ("in_flight", "_requests"),
    "sessions/s": "_sessions_s",
    "USD": "_usd",
    "B": "_bytes",
    "preemptions": "_preemptions",
    "J/tok": "_j_tok",
}
each_metric = pytest.mark.parametrize("metric", list(METRICS), ids=METRICS.names())


@each_metric
def test_a_metric_with_a_unit_carries_it_at_the_end_of_its_name(metric: Metric) -> None:
    name = metric.id
    for tail in ("_per_gpu", "_mean", "_max"):  # the denominator and the statistic come last
        name = name.removesuffix(tail)
    if metric.unit == "1":
        assert name.endswith(("_share", "_ratio", "_rate"))
    else:
        assert name.endswith(SUFFIXES[metric.unit])


@each_metric
def test_a_metric_is_registered_under_its_own_id(metric: Metric) -> None:
    assert METRICS.get(metric.id) is metric


@each_metric
def test_a_metric_says_how_it_follows_from_what_was_measured(metric: Metric) -> None:
    assert metric.formula
    assert metric.label
    assert metric.levels


@each_metric
def test_times_are_better_when_lower_and_rates_when_higher(metric: Metric) -> None:
    if metric.unit in ("ms", "s"):
        assert metric.direction is Direction.LOWER
    elif metric.unit.endswith("/s") and metric is not OFFERED_RATE:  # asked for, not achieved
        assert metric.direction is Direction.HIGHER


@each_metric
def test_a_rate_that_scales_with_the_machine_names_what_it_is_counted_per(metric: Metric) -> None:
    if metric.denominator is not None:
        assert metric.denominator in ("gpu", "request")


def test_a_metric_cannot_be_registered_twice() -> None:
    first = next(iter(METRICS))
    with pytest.raises(BenchxError, match=f"metric '{first.id}' is registered twice"):
        METRICS.add(first.id, first)
