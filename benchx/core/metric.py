"""The metric registry: id, unit, direction and formula, registered once and used everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from benchx.core.registry import Registry

Level = Literal["kernel", "model", "serving"]


class Direction(StrEnum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A quantity that benchx reports.

    Attributes:
        id: Column name; ends in its unit (`device_time_ms`).
        unit: Unit as printed.
        direction: Which way is better.
        formula: How it follows from what was measured.
        levels: Where it is defined.
        denominator: What a throughput is counted per ("gpu", "request"), or None.
        label: Heading for people.
    """

    id: str
    unit: str
    direction: Direction
    formula: str
    levels: tuple[Level, ...]
    label: str
    denominator: str | None = None


METRICS: Registry[Metric] = Registry("metric")


def _metric(
    metric_id: str,
    unit: str,
    direction: Direction,
    label: str,
    formula: str,
    levels: tuple[Level, ...] = ("kernel", "model"),
    denominator: str | None = None,
) -> Metric:
    return METRICS.add(
        metric_id,
        Metric(
            id=metric_id,
            unit=unit,
            direction=direction,
            formula=formula,
            levels=levels,
            label=label,
            denominator=denominator,
        ),
    )


DEVICE_TIME = _metric(
    "device_time_ms", "ms", Direction.LOWER, "device time",
    "device events around one call (GPU) or the monotonic clock around it (CPU)",
)  # fmt: skip
CALL_TIME = _metric(
    "call_time_ms", "ms", Direction.LOWER, "call time",
    "monotonic clock from submission until the device is idle, nothing queued before",
)  # fmt: skip
HOST_TIME = _metric(
    "host_time_ms", "ms", Direction.LOWER, "host time",
    "monotonic clock until the call returned, without waiting for the device",
)  # fmt: skip
COMPILE_TIME = _metric(
    "compile_time_s", "s", Direction.LOWER, "compile time",
    "first call minus a steady call: JIT, autotuning, module load",
)  # fmt: skip
COMPUTE = _metric(
    "compute_tflop_s", "TFLOP/s", Direction.HIGHER, "compute rate",
    "operator's FLOPs / device_time_ms", denominator="gpu",
)  # fmt: skip
BANDWIDTH = _metric(
    "bandwidth_gb_s", "GB/s", Direction.HIGHER, "bandwidth",
    "operator's minimum bytes / device_time_ms", denominator="gpu",
)  # fmt: skip
ROOFLINE = _metric(
    "roofline_share", "1", Direction.HIGHER, "share of roofline",
    "max(FLOPs / measured matrix rate, minimum bytes / measured copy bandwidth) / device_time_ms",
)  # fmt: skip
TOKENS = _metric(
    "token_throughput_tok_s", "tok/s", Direction.HIGHER, "tokens per second",
    "tokens the call computed / device_time_ms", denominator="gpu",
)  # fmt: skip
KV_CACHE = _metric(
    "kv_cache_bytes", "B", Direction.NEITHER, "cache bytes",
    "cache bytes that the call leaves behind and that grow with tokens",
)  # fmt: skip
KV_STATE = _metric(
    "kv_state_bytes", "B", Direction.NEITHER, "state bytes",
    "recurrent-state bytes that the call leaves behind, constant per sequence",
)  # fmt: skip
KV_THROUGHPUT = _metric(
    "kv_throughput_gb_s", "GB/s", Direction.HIGHER, "KV throughput",
    "(kv_cache_bytes + kv_state_bytes) / device_time_ms; prefill only",
)  # fmt: skip
KV_THROUGHPUT_BITS = _metric(
    "kv_throughput_gbit_s", "Gbit/s", Direction.HIGHER, "KV throughput",
    "8 x kv_throughput_gb_s: the bandwidth that splitting prefill from decode needs",
)  # fmt: skip
PEAK_MEMORY = _metric(
    "peak_memory_bytes", "B", Direction.LOWER, "peak memory",
    "most device memory held during one call beyond its inputs and outputs",
)  # fmt: skip
RMS_RATIO = _metric(
    "rms_ratio", "1", Direction.LOWER, "error",
    "largest over the outputs of rms(output - fp64 reference) / rms(reference)",
)  # fmt: skip
