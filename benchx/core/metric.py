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
    "cache bytes that the call (serving: a request's prefill, on average) leaves behind and that "
    "grow with tokens",
    ("kernel", "model", "serving"),
)  # fmt: skip
KV_STATE = _metric(
    "kv_state_bytes", "B", Direction.NEITHER, "state bytes",
    "recurrent-state bytes that the call leaves behind, constant per sequence",
    ("kernel", "model", "serving"),
)  # fmt: skip
KV_THROUGHPUT = _metric(
    "kv_throughput_gb_s", "GB/s", Direction.HIGHER, "KV throughput",
    "(kv_cache_bytes + kv_state_bytes) / device_time_ms; prefill only. Serving: / prefill time of "
    "the server's metrics, else ttft_ms of requests that did not overlap (kv_prefill_source)",
    ("kernel", "model", "serving"),
)  # fmt: skip
KV_THROUGHPUT_BITS = _metric(
    "kv_throughput_gbit_s", "Gbit/s", Direction.HIGHER, "KV throughput",
    "8 x kv_throughput_gb_s: the bandwidth that splitting prefill from decode needs",
    ("kernel", "model", "serving"),
)  # fmt: skip
PEAK_MEMORY = _metric(
    "peak_memory_bytes", "B", Direction.LOWER, "peak memory",
    "most device memory held during one call beyond its inputs and outputs",
)  # fmt: skip
RMS_RATIO = _metric(
    "rms_ratio", "1", Direction.LOWER, "error",
    "largest over the outputs of rms(output - fp64 reference) / rms(reference)",
)  # fmt: skip


# Serving: times of one request, from `sent` (its bytes handed to the socket) unless said otherwise.
_SERVING: tuple[Level, ...] = ("serving",)

TTFT = _metric(
    "ttft_ms", "ms", Direction.LOWER, "time to first token",
    "first generated payload of any kind (text, reasoning, tool call; no role-only chunk) - sent",
    _SERVING,
)  # fmt: skip
TTFT_INTENDED = _metric(
    "ttft_intended_ms", "ms", Direction.LOWER, "TTFT from intended start",
    "first generated payload - intended send time, so that waiting for a slot counts",
    _SERVING,
)  # fmt: skip
TTFR = _metric(
    "ttfr_ms", "ms", Direction.LOWER, "time to first reasoning",
    "first reasoning text - sent", _SERVING,
)  # fmt: skip
TTFO = _metric(
    "ttfo_ms", "ms", Direction.LOWER, "time to first visible output",
    "first text or tool call that is not reasoning - sent", _SERVING,
)  # fmt: skip
FIRST_BYTE = _metric(
    "first_byte_ms", "ms", Direction.LOWER, "time to first byte",
    "first byte of the response (its headers) - sent", _SERVING,
)  # fmt: skip
TPOT = _metric(
    "tpot_ms", "ms", Direction.LOWER, "time per output token",
    "(last payload - first payload) / (output tokens - tokens of the first chunk, 1 if unknown)",
    _SERVING,
)  # fmt: skip
ITL = _metric(
    "itl_ms", "ms", Direction.LOWER, "inter-token latency",
    "gap before a chunk / its tokens, once per token, pooled; absent if chunks hold unknown counts",
    _SERVING,
)  # fmt: skip
CHUNK_GAP = _metric(
    "chunk_gap_ms", "ms", Direction.LOWER, "gap between chunks",
    "time between two chunks with payload of one request, pooled", _SERVING,
)  # fmt: skip
E2E = _metric(
    "e2e_ms", "ms", Direction.LOWER, "end-to-end latency",
    "last generated payload (not streamed: end of the response) - sent", _SERVING,
)  # fmt: skip
E2E_INTENDED = _metric(
    "e2e_intended_ms", "ms", Direction.LOWER, "end-to-end latency from intended start",
    "last generated payload - intended send time", _SERVING,
)  # fmt: skip
CLIENT_LAG = _metric(
    "client_lag_ms", "ms", Direction.LOWER, "send lag of the client",
    "sent - intended send time: the client's own delay and waiting for a slot", _SERVING,
)  # fmt: skip
LOOP_LAG = _metric(
    "loop_lag_ms", "ms", Direction.LOWER, "receive lag of the client",
    "lateness of a 5 ms timer in the client's event loop: how late a byte may be stamped", _SERVING,
)  # fmt: skip
CLIENT_CPU = _metric(
    "client_cpu_share", "1", Direction.LOWER, "CPU share of the client",
    "processor time / wall time of the busiest client process", _SERVING,
)  # fmt: skip
INTERACTIVITY = _metric(
    "interactivity_tok_s", "tok/s", Direction.HIGHER, "interactivity",
    "1000 / tpot_ms of each request", _SERVING, "request",
)  # fmt: skip
E2E_INTERACTIVITY = _metric(
    "e2e_interactivity_tok_s", "tok/s", Direction.HIGHER, "end-to-end interactivity",
    "output tokens / e2e of each request", _SERVING, "request",
)  # fmt: skip
PREFILL_SPEED = _metric(
    "prefill_speed_tok_s", "tok/s", Direction.HIGHER, "prompt tokens per TTFT",
    "prompt tokens, cached ones excluded / ttft of each request", _SERVING, "request",
)  # fmt: skip
REQUEST_THROUGHPUT = _metric(
    "request_throughput_req_s", "req/s", Direction.HIGHER, "request throughput",
    "ok requests / wall time from first intended send to last end", _SERVING,
)  # fmt: skip
INPUT_THROUGHPUT = _metric(
    "input_throughput_tok_s", "tok/s", Direction.HIGHER, "input throughput",
    "prompt tokens of ok requests / wall time", _SERVING,
)  # fmt: skip
OUTPUT_THROUGHPUT = _metric(
    "output_throughput_tok_s", "tok/s", Direction.HIGHER, "output throughput",
    "output tokens of ok requests / wall time", _SERVING,
)  # fmt: skip
TOTAL_THROUGHPUT = _metric(
    "total_throughput_tok_s", "tok/s", Direction.HIGHER, "total throughput",
    "(prompt + output tokens) of ok requests / wall time", _SERVING,
)  # fmt: skip
OUTPUT_PER_GPU = _metric(
    "output_throughput_tok_s_per_gpu", "tok/s", Direction.HIGHER, "output throughput per GPU",
    "output_throughput_tok_s / GPUs observed", _SERVING, "gpu",
)  # fmt: skip
TOTAL_PER_GPU = _metric(
    "total_throughput_tok_s_per_gpu", "tok/s", Direction.HIGHER, "total throughput per GPU",
    "total_throughput_tok_s / GPUs observed", _SERVING, "gpu",
)  # fmt: skip
STEADY_OUTPUT = _metric(
    "steady_output_throughput_tok_s", "tok/s", Direction.HIGHER, "steady output throughput",
    "output tokens that arrived from the first end to the last send / that time; absent where "
    "it is shorter than two lifetimes of a request", _SERVING,
)  # fmt: skip
STEADY_REQUESTS = _metric(
    "steady_request_throughput_req_s", "req/s", Direction.HIGHER, "steady request throughput",
    "ok requests that ended from the first end to the last send / that time; absent where "
    "it is shorter than two lifetimes of a request", _SERVING,
)  # fmt: skip
GOODPUT = _metric(
    "goodput_req_s", "req/s", Direction.HIGHER, "goodput",
    "ok requests that meet every limit of the SLO, counted from intended start / wall time",
    _SERVING,
)  # fmt: skip
GOODPUT_SHARE = _metric(
    "goodput_share", "1", Direction.HIGHER, "SLO attainment",
    "requests that are ok and meet every limit of the SLO / all requests, those that were due and "
    "never sent included",
    _SERVING,
)  # fmt: skip
ERROR_RATE = _metric(
    "error_rate", "1", Direction.LOWER, "error rate",
    "requests that are not ok / all requests, those that were due and never sent included",
    _SERVING,
)  # fmt: skip
OVERDUE = _metric(
    "overdue_requests", "requests", Direction.LOWER, "due, never sent",
    "requests of an open loop whose time had come and that were not sent before the load was "
    "stopped",
    _SERVING,
)  # fmt: skip
OFFERED_RATE = _metric(
    "offered_rate_req_s", "req/s", Direction.NEITHER, "offered rate",
    "starts that were due in an open loop, sent or not / time between the first and the last of "
    "them; of a chained data set each start is a session",
    _SERVING,
)  # fmt: skip
ACHIEVED_SHARE = _metric(
    "achieved_rate_share", "1", Direction.HIGHER, "achieved / offered rate",
    "completions per second / starts per second, each between the first and the last tenth of "
    "them: below 1 the server falls behind; see serving.keeping_up",
    _SERVING,
)  # fmt: skip
WAIT_GROWTH = _metric(
    "wait_growth_ratio", "1", Direction.LOWER, "growth of the wait, s/s",
    "(median wait for the first token, from the intended start, of the last third of the requests "
    "- that of the first third) / time between these thirds",
    _SERVING,
)  # fmt: skip
DURATION = _metric(
    "duration_s", "s", Direction.LOWER, "wall time",
    "first intended send to last end, draining included", _SERVING,
)  # fmt: skip
IN_FLIGHT = _metric(
    "in_flight_mean", "requests", Direction.NEITHER, "requests in flight",
    "sum over requests of (end - sent) / wall time", _SERVING,
)  # fmt: skip
IN_FLIGHT_MAX = _metric(
    "in_flight_max", "requests", Direction.NEITHER, "most requests in flight",
    "most requests that were sent and not ended at one time", _SERVING,
)  # fmt: skip
INPUT_TOKENS = _metric(
    "input_tokens_mean", "tok", Direction.NEITHER, "prompt length",
    "mean prompt tokens of ok requests, by the server's count where it gives one", _SERVING,
)  # fmt: skip
OUTPUT_TOKENS = _metric(
    "output_tokens_mean", "tok", Direction.NEITHER, "output length",
    "mean output tokens of ok requests, by the server's count where it gives one", _SERVING,
)  # fmt: skip
CHUNK_TOKENS = _metric(
    "chunk_tokens_mean", "tok", Direction.NEITHER, "tokens per chunk",
    "output tokens / chunks with payload, over ok requests that were streamed", _SERVING,
)  # fmt: skip
CACHED_SHARE = _metric(
    "cached_token_share", "1", Direction.NEITHER, "cached share of prompts",
    "cached / all prompt tokens of ok requests whose usage tells both", _SERVING,
)  # fmt: skip
SPENT = _metric(
    "spent_usd", "USD", Direction.LOWER, "charged by the service",
    "sum of usage.cost over all requests of the point that tell it, those of its warm-up and of "
    "every load of a search included",
    _SERVING,
)  # fmt: skip
SLO_CONCURRENCY = _metric(
    "slo_in_flight_max", "requests", Direction.HIGHER, "highest concurrency within the SLO",
    "largest concurrency tried at which enough requests meet the SLO (goodput_share)", _SERVING,
)  # fmt: skip
SLO_RATE = _metric(
    "slo_rate_req_s", "req/s", Direction.HIGHER, "highest rate within the SLO",
    "largest request rate tried at which enough requests meet the SLO (goodput_share) and the "
    "server keeps up with the rate",
    _SERVING,
)  # fmt: skip
SLO_SESSION_RATE = _metric(
    "slo_session_rate_sessions_s", "sessions/s", Direction.HIGHER,
    "highest session rate within the SLO",
    "largest rate of starting sessions tried at which enough requests meet the SLO "
    "(goodput_share) and the server keeps up with the rate",
    _SERVING,
)  # fmt: skip

# What the server told of itself while the load ran, see `serving.server_summary`.
SERVER_QUEUE = _metric(
    "server_queue_ms", "ms", Direction.LOWER, "queueing at the server",
    "time that a request waited at the server before its prefill, by the server's metrics",
    _SERVING,
)  # fmt: skip
SERVER_PREFILL = _metric(
    "server_prefill_ms", "ms", Direction.LOWER, "prefill at the server",
    "prefill time of a request by the server's metrics, steps shared with others included",
    _SERVING,
)  # fmt: skip
KV_USAGE = _metric(
    "server_kv_usage_share", "1", Direction.NEITHER, "KV cache in use",
    "largest share of the server's KV cache in use, read once a second", _SERVING,
)  # fmt: skip
PREEMPTIONS = _metric(
    "server_preemptions", "preemptions", Direction.LOWER, "preemptions",
    "requests thrown out of the server's cache to make room, and computed again", _SERVING,
)  # fmt: skip
PREFIX_HITS = _metric(
    "server_prefix_hit_share", "1", Direction.NEITHER, "prefix cache hits",
    "prompt tokens found in the server's own prefix cache / all, by its metrics", _SERVING,
)  # fmt: skip
EXTERNAL_HITS = _metric(
    "server_external_hit_share", "1", Direction.NEITHER, "hits outside",
    "prompt tokens loaded from host memory or other machines / all, by the server's metrics",
    _SERVING,
)  # fmt: skip
ACCEPTANCE = _metric(
    "acceptance_length_tokens", "tok", Direction.HIGHER, "acceptance length",
    "1 + accepted / drafts of speculative decoding, by the server's metrics", _SERVING,
)  # fmt: skip
ENERGY = _metric(
    "output_energy_j_tok", "J/tok", Direction.LOWER, "energy per output token",
    "mean power of the GPU x wall time / output tokens of ok requests; one GPU only", _SERVING,
    "gpu",
)  # fmt: skip
