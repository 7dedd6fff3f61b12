"""The metric registry: id, unit, direction, role and formula, registered once, used everywhere."""

from __future__ import annotations

from typing import NamedTuple

from benchx.core.metric_base import METRICS, STATISTICS, Direction, Level, Metric, Role
from benchx.core.metric_kernel import (
    BANDWIDTH,
    CALL_TIME,
    COMPILE_TIME,
    COMPUTE,
    DEVICE_TIME,
    HOST_TIME,
    KV_CACHE,
    KV_STATE,
    KV_THROUGHPUT,
    KV_THROUGHPUT_BITS,
    PEAK_MEMORY,
    RMS_RATIO,
    ROOFLINE,
    TOKENS,
)
from benchx.core.metric_latency import (
    CHUNK_GAP,
    E2E,
    E2E_INTENDED,
    E2E_INTERACTIVITY,
    FIRST_BYTE,
    INTERACTIVITY,
    ITL,
    PREFILL_SPEED,
    TPOT,
    TTFO,
    TTFR,
    TTFT,
    TTFT_INTENDED,
)
from benchx.core.metric_load import (
    ACHIEVED_SHARE,
    CACHED_SHARE,
    CHUNK_TOKENS,
    CLIENT_CPU,
    CLIENT_LAG,
    DURATION,
    ERROR_RATE,
    GOODPUT,
    GOODPUT_SHARE,
    IN_FLIGHT,
    IN_FLIGHT_MAX,
    INPUT_THROUGHPUT,
    INPUT_TOKENS,
    LOOP_LAG,
    OFFERED_RATE,
    OUTPUT_PER_GPU,
    OUTPUT_THROUGHPUT,
    OUTPUT_TOKENS,
    OVERDUE,
    REQUEST_THROUGHPUT,
    SLO_CONCURRENCY,
    SLO_RATE,
    SLO_SESSION_RATE,
    SPENT,
    STEADY_OUTPUT,
    STEADY_REQUESTS,
    TOTAL_PER_GPU,
    TOTAL_THROUGHPUT,
    WAIT_GROWTH,
)
from benchx.core.metric_server import (
    ACCEPTANCE,
    ENERGY,
    EXTERNAL_HITS,
    KV_USAGE,
    PREEMPTIONS,
    PREFIX_HITS,
    SERVER_PREFILL,
    SERVER_QUEUE,
)

__all__ = [
    "ACCEPTANCE",
    "ACHIEVED_SHARE",
    "BANDWIDTH",
    "CACHED_SHARE",
    "CALL_TIME",
    "CHUNK_GAP",
    "CHUNK_TOKENS",
    "CLIENT_CPU",
    "CLIENT_LAG",
    "COMPILE_TIME",
    "COMPUTE",
    "DEVICE_TIME",
    "DURATION",
    "E2E",
    "E2E_INTENDED",
    "E2E_INTERACTIVITY",
    "ENERGY",
    "ERROR_RATE",
    "EXTERNAL_HITS",
    "FIRST_BYTE",
    "GOODPUT",
    "GOODPUT_SHARE",
    "HOST_TIME",
    "INPUT_THROUGHPUT",
    "INPUT_TOKENS",
    "INTERACTIVITY",
    "IN_FLIGHT",
    "IN_FLIGHT_MAX",
    "ITL",
    "KV_CACHE",
    "KV_STATE",
    "KV_THROUGHPUT",
    "KV_THROUGHPUT_BITS",
    "KV_USAGE",
    "LOOP_LAG",
    "METRICS",
    "OFFERED_RATE",
    "OUTPUT_PER_GPU",
    "OUTPUT_THROUGHPUT",
    "OUTPUT_TOKENS",
    "OVERDUE",
    "PEAK_MEMORY",
    "PREEMPTIONS",
    "PREFILL_SPEED",
    "PREFIX_HITS",
    "REQUEST_THROUGHPUT",
    "RMS_RATIO",
    "ROOFLINE",
    "SERVER_PREFILL",
    "SERVER_QUEUE",
    "SLO_CONCURRENCY",
    "SLO_RATE",
    "SLO_SESSION_RATE",
    "SPENT",
    "STATISTICS",
    "STEADY_OUTPUT",
    "STEADY_REQUESTS",
    "TOKENS",
    "TOTAL_PER_GPU",
    "TOTAL_THROUGHPUT",
    "TPOT",
    "TTFO",
    "TTFR",
    "TTFT",
    "TTFT_INTENDED",
    "WAIT_GROWTH",
    "Direction",
    "Level",
    "Metric",
    "MetricColumn",
    "Role",
    "parse_column",
]


class MetricColumn(NamedTuple):
    """What a column of figures holds: a metric, or one statistic of it (`p50`, `ci_low`)."""

    metric: Metric
    statistic: str | None


def parse_column(name: str) -> MetricColumn | None:
    """The metric and statistic of a column's name, or None when it is no column of figures.

    A name that is a metric's id is that metric (`in_flight_mean`, which has no statistic);
    otherwise the name is an id, `_`, and one of `STATISTICS`.
    """
    if name in METRICS:
        return MetricColumn(METRICS.get(name), None)
    for statistic in STATISTICS:
        metric_id = name.removesuffix(f"_{statistic}")
        if metric_id != name and metric_id in METRICS:
            return MetricColumn(METRICS.get(metric_id), statistic)
    return None
