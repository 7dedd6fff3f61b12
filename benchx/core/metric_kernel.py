"""Metrics of one call: kernels and models (`core.metric` is where to import them from)."""

from __future__ import annotations

from benchx.core.metric_base import EVERY_LEVEL, KERNEL_AND_MODEL, SERVING, Direction, Role, define

DEVICE_TIME = define(
    id="device_time_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.PRIMARY,
    levels=KERNEL_AND_MODEL,
    label="device time",
    formula="device events around one call (GPU) or the monotonic clock around it (CPU)",
)

CALL_TIME = define(
    id="call_time_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=KERNEL_AND_MODEL,
    label="call time",
    formula="monotonic clock from submission until the device is idle, nothing queued before",
)

HOST_TIME = define(
    id="host_time_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=KERNEL_AND_MODEL,
    label="host time",
    formula="monotonic clock until the call returned, without waiting for the device",
)

COMPILE_TIME = define(
    id="compile_time_s",
    unit="s",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=KERNEL_AND_MODEL,
    label="compile time",
    formula=(
        "first call minus a steady call: JIT, autotuning, module load; of several launches the "
        "largest, as later ones may find the disk caches filled"
    ),
)

COMPUTE = define(
    id="compute_tflop_s",
    unit="TFLOP/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("device_time_ms",),
    levels=KERNEL_AND_MODEL,
    denominator="gpu",
    label="compute rate",
    formula="operator's FLOPs / device_time_ms",
)

BANDWIDTH = define(
    id="bandwidth_gb_s",
    unit="GB/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("device_time_ms",),
    levels=KERNEL_AND_MODEL,
    denominator="gpu",
    label="bandwidth",
    formula="operator's minimum bytes / device_time_ms",
)

ROOFLINE = define(
    id="roofline_share",
    unit="1",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("device_time_ms",),
    levels=KERNEL_AND_MODEL,
    label="share of roofline",
    formula=(
        "max(FLOPs / measured matrix rate, minimum bytes / measured copy bandwidth) / "
        "device_time_ms"
    ),
)

TOKENS = define(
    id="token_throughput_tok_s",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("device_time_ms",),
    levels=KERNEL_AND_MODEL,
    denominator="gpu",
    label="tokens per second",
    formula="tokens the call computed / device_time_ms",
)

KV_CACHE = define(
    id="kv_cache_bytes",
    unit="B",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=EVERY_LEVEL,
    label="cache bytes",
    formula=(
        "cache bytes that the call (serving: a request's prefill, on average) leaves behind and "
        "that grow with tokens"
    ),
)

KV_STATE = define(
    id="kv_state_bytes",
    unit="B",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=EVERY_LEVEL,
    label="state bytes",
    formula="recurrent-state bytes that the call leaves behind, constant per sequence",
)

KV_THROUGHPUT = define(
    id="kv_throughput_gb_s",
    unit="GB/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("device_time_ms",),
    levels=EVERY_LEVEL,
    primary_at=SERVING,
    label="KV throughput",
    formula=(
        "(kv_cache_bytes + kv_state_bytes) / device_time_ms; prefill only. Serving: / prefill time "
        "of the server's metrics, else ttft_ms of requests that did not overlap "
        "(kv_prefill_source)"
    ),
)

KV_THROUGHPUT_BITS = define(
    id="kv_throughput_gbit_s",
    unit="Gbit/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("kv_throughput_gb_s",),
    levels=EVERY_LEVEL,
    label="KV throughput",
    formula="8 x kv_throughput_gb_s: the bandwidth that splitting prefill from decode needs",
)

PEAK_MEMORY = define(
    id="peak_memory_bytes",
    unit="B",
    direction=Direction.LOWER,
    role=Role.PRIMARY,
    levels=KERNEL_AND_MODEL,
    label="peak memory",
    formula="most device memory held during one call beyond its inputs and outputs",
)

RMS_RATIO = define(
    id="rms_ratio",
    unit="1",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=KERNEL_AND_MODEL,
    label="error",
    formula="largest over the outputs of rms(output - fp64 reference) / rms(reference)",
)
