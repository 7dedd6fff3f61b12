"""What servers tell of themselves, under one set of names; sources are exact, never a part of one.

A page of metrics also holds `*_created` series, whose values are Unix times: a search by part of a
name has mistaken them for bytes before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["gauge", "counter", "histogram", "by_label"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where one quantity of ours comes from.

    Attributes:
        names: Exact names, the first one present counts (versions rename).
        kind: `histogram` stands for its sum and count; `by_label` is one counter per value of
            `label`.
        how: How series of several ranks become one.
        where: Labels that a series must have.
        label: Of `by_label`.
    """

    names: tuple[str, ...]
    kind: Kind
    how: Literal["sum", "max", "mean"] = "sum"
    where: Mapping[str, str] = field(default_factory=dict)
    label: str = ""


def _gauge(*names: str, how: Literal["sum", "max", "mean"] = "sum") -> Source:
    return Source(names=names, kind="gauge", how=how)


def _counter(*names: str, **where: str) -> Source:
    return Source(names=names, kind="counter", where=where)


def _histogram(*names: str) -> Source:
    return Source(names=names, kind="histogram")


SourceMap = Mapping[str, Source]

VLLM: SourceMap = {
    "requests_running": _gauge("vllm:num_requests_running"),
    "requests_waiting": _gauge("vllm:num_requests_waiting"),
    "kv_usage_share": _gauge("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", how="max"),
    "preemptions": _counter("vllm:num_preemptions_total"),
    "input_tokens": _counter("vllm:prompt_tokens_total"),
    "output_tokens": _counter("vllm:generation_tokens_total"),
    "prefix_queries": _counter(
        "vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"
    ),
    "prefix_hits": _counter("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "external_queries": _counter("vllm:external_prefix_cache_queries_total"),
    "external_hits": _counter("vllm:external_prefix_cache_hits_total"),
    "input_computed": _counter("vllm:prompt_tokens_by_source_total", source="local_compute"),
    "input_from_cache": _counter("vllm:prompt_tokens_by_source_total", source="local_cache_hit"),
    "input_from_outside": _counter(
        "vllm:prompt_tokens_by_source_total", source="external_kv_transfer"
    ),
    "offload_out_bytes": _counter("vllm:kv_offload_total_bytes_total", transfer_type="GPU_to_CPU"),
    "offload_in_bytes": _counter("vllm:kv_offload_total_bytes_total", transfer_type="CPU_to_GPU"),
    "drafts": _counter("vllm:spec_decode_num_drafts_total"),
    "draft_tokens": _counter("vllm:spec_decode_num_draft_tokens_total"),
    "accepted_tokens": _counter("vllm:spec_decode_num_accepted_tokens_total"),
    "accepted_at": Source(
        names=("vllm:spec_decode_num_accepted_tokens_per_pos_total",),
        kind="by_label",
        label="position",
    ),
    "ttft_s": _histogram("vllm:time_to_first_token_seconds"),
    "queue_s": _histogram("vllm:request_queue_time_seconds"),
    "prefill_s": _histogram("vllm:request_prefill_time_seconds"),
    "decode_s": _histogram("vllm:request_decode_time_seconds"),
    "e2e_s": _histogram("vllm:e2e_request_latency_seconds"),
}

SGLANG: SourceMap = {
    "requests_running": _gauge("sglang:num_running_reqs"),
    "requests_waiting": _gauge("sglang:num_queue_reqs"),
    "kv_usage_share": _gauge("sglang:token_usage", how="max"),
    "preemptions": _counter("sglang:num_retracted_requests_total"),
    "input_tokens": _counter("sglang:prompt_tokens_total"),
    "output_tokens": _counter("sglang:generation_tokens_total"),
    "prefix_queries": _counter("sglang:prompt_tokens_total"),
    "prefix_hits": _counter("sglang:cached_tokens_total"),
    "acceptance_length": _gauge("sglang:spec_accept_length", how="mean"),
    "ttft_s": _histogram("sglang:time_to_first_token_seconds"),
    "queue_s": _histogram("sglang:queue_time_seconds"),
    "e2e_s": _histogram("sglang:e2e_request_latency_seconds"),
}
"""Hits of GPU and host cache are one figure; `acceptance_length` is of the latest moment only.

No prefill time: its stages (`sglang:per_stage_req_latency_seconds`) count chunks of a long prompt
apart, so that none of them is the time of a whole prefill.
"""

TRTLLM: SourceMap = {
    "requests_running": _gauge("trtllm_num_requests_running"),
    "requests_waiting": _gauge("trtllm_num_requests_waiting"),
    "kv_usage_share": _gauge("trtllm_kv_cache_utilization", how="max"),
    "prefix_hit_blocks": _counter("trtllm_kv_cache_reused_blocks_total"),
    "prefix_missed_blocks": _counter("trtllm_kv_cache_missed_blocks_total"),
    "offload_out_bytes": _counter("trtllm_kv_cache_offload_bytes_total"),
    "offload_in_bytes": _counter("trtllm_kv_cache_onboard_bytes_total"),
    "ttft_s": _histogram("trtllm_time_to_first_token_seconds"),
    "queue_s": _histogram("trtllm_request_queue_time_seconds"),
    "e2e_s": _histogram("trtllm_e2e_request_latency_seconds"),
}

LLAMACPP: SourceMap = {
    "requests_running": _gauge("llamacpp:requests_processing"),
    "requests_waiting": _gauge("llamacpp:requests_deferred"),
    "kv_usage_share": _gauge("llamacpp:kv_cache_usage_ratio", how="max"),
    "input_tokens": _counter("llamacpp:prompt_tokens_total"),
    "output_tokens": _counter("llamacpp:tokens_predicted_total"),
}
"""Its prompt tokens are those that it computed, without those from a slot's cache, of which nothing
is told; newer versions don't tell the use of the cache either.
"""

PREFIXES: Mapping[str, SourceMap] = {
    "vllm:": VLLM,
    "sglang:": SGLANG,
    "trtllm_": TRTLLM,
    "llamacpp:": LLAMACPP,
}


def sources_of(names: Collection[str]) -> SourceMap:
    """The map whose names a page has; empty for a server that is not known."""
    for prefix, sources in PREFIXES.items():
        if any(name.startswith(prefix) for name in names):
            return sources
    return {}


def wanted_names(sources: SourceMap) -> frozenset[str]:
    """All exact names that a map reads."""
    return frozenset(
        part
        for source in sources.values()
        for name in source.names
        for part in ((f"{name}_sum", f"{name}_count") if source.kind == "histogram" else (name,))
    )
