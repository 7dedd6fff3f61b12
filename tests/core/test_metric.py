"""Every metric says its unit, direction and formula, once."""

from __future__ import annotations

import pytest

from benchx.core.errors import BenchxError
from benchx.core.metric import (
    METRICS,
    OFFERED_RATE,
    STATISTICS,
    Direction,
    Metric,
    Role,
    parse_column,
)

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
        assert metric.unit.endswith("/s")


def test_a_metric_cannot_be_registered_twice() -> None:
    first = next(iter(METRICS))
    with pytest.raises(BenchxError, match=f"metric '{first.id}' is registered twice"):
        METRICS.add(first.id, first)


@each_metric
def test_a_derived_metric_names_registered_sources_and_no_circle(metric: Metric) -> None:
    assert (metric.role is Role.DERIVED) == bool(metric.derived_from)
    seen, to_visit = set(), list(metric.derived_from)
    while to_visit:
        name = to_visit.pop()
        seen.add(name)
        to_visit += METRICS.get(name).derived_from
    assert metric.id not in seen


@each_metric
def test_a_derived_metric_follows_from_a_primary_one_of_its_level_or_is_primary_there(
    metric: Metric,
) -> None:
    for level in metric.levels if metric.role is Role.DERIVED else ():
        sources, to_visit = set(), [metric.id]
        while to_visit:
            one = METRICS.get(to_visit.pop())
            if level in one.levels and one.role_at(level) is Role.PRIMARY:
                sources.add(one.id)
            to_visit += one.derived_from
        assert sources, (metric.id, level)


def test_one_fact_of_a_kernel_is_judged_once() -> None:
    found = {m.id for m in METRICS if "kernel" in m.levels and m.role_at("kernel") is Role.PRIMARY}
    assert found == {"device_time_ms", "peak_memory_bytes"}


def test_kv_throughput_follows_from_a_kernels_time_and_stands_for_itself_in_serving() -> None:
    kv_throughput = METRICS.get("kv_throughput_gb_s")
    assert kv_throughput.role_at("kernel") is Role.DERIVED
    assert kv_throughput.role_at("serving") is Role.PRIMARY


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": Role.DERIVED},
        {"role": Role.PRIMARY, "derived_from": ("device_time_ms",)},
        {"role": Role.DIAGNOSTIC, "primary_at": ("serving",)},
    ],
)
def test_a_role_that_contradicts_the_sources_is_refused(wrong: dict[str, object]) -> None:
    fields: dict[str, object] = {
        "id": "x_ms",
        "unit": "ms",
        "direction": Direction.LOWER,
        "formula": "f",
        "levels": ("kernel",),
        "label": "x",
    }
    with pytest.raises(ValueError, match="metric x_ms"):
        Metric(**(fields | wrong))


@each_metric
def test_a_column_is_taken_apart_into_its_metric_and_statistic(metric: Metric) -> None:
    assert parse_column(metric.id) == (metric, None)
    for statistic in STATISTICS:
        assert parse_column(metric.column(statistic)) == (metric, statistic)


@pytest.mark.parametrize("name", ["heads", "p50", "ttft_ms_p51", "ttft_ms_", "device_time", ""])
def test_a_name_that_is_no_column_of_figures_is_not_taken_for_one(name: str) -> None:
    assert parse_column(name) is None


def test_what_is_counted_per_gpu_is_a_metric_of_its_own() -> None:
    assert parse_column("output_throughput_tok_s_per_gpu").metric.denominator == "gpu"
    assert parse_column("output_throughput_tok_s").metric.denominator is None


def test_a_statistic_that_nobody_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="p42"):
        METRICS.get("ttft_ms").column("p42")
