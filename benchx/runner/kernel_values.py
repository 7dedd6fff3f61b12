"""The figures of one point in one launch, from its samples and what the call does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchx.core import metric
from benchx.core.record import Timing, Work
from benchx.measure.interleave import Measured
from benchx.runner.kernel_setup import Ready
from benchx.stats.summary import median


def kernel_values(
    ready: Ready, measured: Measured, work: Work, ceilings: Mapping[str, Any]
) -> dict[str, float]:
    """Metric id -> value; what is undefined for this operator or unknown here is absent."""
    values = {name: median(samples) for name, samples in measured.samples.items() if samples}
    values[metric.COMPILE_TIME.id] = ready.warm_up.compile_time_s
    values[metric.RMS_RATIO.id] = ready.check.worst
    if ready.peak_bytes is not None:
        values[metric.PEAK_MEMORY.id] = float(ready.peak_bytes)
    seconds = values[metric.DEVICE_TIME.id] / 1e3
    if seconds <= 0:  # two events of one tick, nothing between them: there is no rate to speak of
        return values
    return values | _rates(work, seconds, ceilings) | _kv(work, seconds)


def _rates(work: Work, seconds: float, ceilings: Mapping[str, Any]) -> dict[str, float]:
    rates = {metric.BANDWIDTH.id: work.min_bytes / seconds / 1e9}
    if work.flops:
        rates[metric.COMPUTE.id] = work.flops / seconds / 1e12
    if work.tokens:
        rates[metric.TOKENS.id] = work.tokens / seconds
    least_s = roofline_s(work, ceilings)
    if least_s is not None:
        rates[metric.ROOFLINE.id] = least_s / seconds
    return rates


def roofline_s(work: Work, ceilings: Mapping[str, Any]) -> float | None:
    """Seconds that the call would take at the measured ceilings; None where they are unknown."""
    least = _least_s(work, ceilings)
    return None if least is None else max(least)


def _least_s(work: Work, ceilings: Mapping[str, Any]) -> tuple[float, float] | None:
    """Seconds for the FLOPs and for the bytes; None where the ceilings are unknown."""
    copy_gb_s, matmul_tflop_s = ceilings.get("copy_gb_s"), ceilings.get("matmul_tflop_s")
    if not copy_gb_s or not matmul_tflop_s:
        return None
    return work.flops / (matmul_tflop_s * 1e12), work.min_bytes / (copy_gb_s * 1e9)


def above_roofline(values: Mapping[str, float]) -> bool:
    """Whether a call took less time than the ceilings allow for."""
    return values.get(metric.ROOFLINE.id, 0.0) > 1


def roofline_notes(
    values: Mapping[str, float], work: Work, ceilings: Mapping[str, Any]
) -> tuple[str, ...]:
    """`above_roofline` where the bytes should have taken longer, as a cache explains.

    `above_compute_roofline` where the FLOPs should have: no cache saves any.
    """
    least = _least_s(work, ceilings)
    if least is None or not above_roofline(values):
        return ()
    seconds = values[metric.DEVICE_TIME.id] / 1e3
    names = ("above_compute_roofline", "above_roofline")
    return tuple(name for name, least_s in zip(names, least, strict=True) if least_s > seconds)


def _kv(work: Work, seconds: float) -> dict[str, float]:
    left_bytes = work.kv_cache_bytes + work.kv_state_bytes
    values = {
        metric.KV_CACHE.id: float(work.kv_cache_bytes),
        metric.KV_STATE.id: float(work.kv_state_bytes),
    }
    if work.leaves_kv and left_bytes:
        values[metric.KV_THROUGHPUT.id] = left_bytes / seconds / 1e9
        values[metric.KV_THROUGHPUT_BITS.id] = 8 * left_bytes / seconds / 1e9
    return values


def timing_of(measured: Measured, *, timer: str, cache: str, notes: tuple[str, ...]) -> Timing:
    """How the samples were taken."""
    return Timing(
        timer=timer,
        cache=cache,
        stop=measured.stop,
        samples=len(measured.samples[metric.DEVICE_TIME.id]),
        notes=tuple(sorted({*measured.notes, *notes})),
    )
