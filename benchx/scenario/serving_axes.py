"""Axes of serving scenarios: the load, the workload, and settings of the engine."""

from __future__ import annotations

from collections.abc import Mapping

from benchx.core.axes import AxisSpec

_LOAD_AXES = {
    "concurrency": AxisSpec(type="int", doc="requests (or sessions) under way", minimum=1),
    "request_rate": AxisSpec(type="float", doc="requests per second, open loop", minimum=1e-6),
    "session_rate": AxisSpec(
        type="float",
        doc="sessions that start per second, open loop, of data sets with sessions",
        minimum=1e-6,
    ),
    "arrival": AxisSpec(
        type="str",
        doc="arrival process of an open loop",
        choices=("poisson", "constant", "gamma", "trace"),
    ),
    "burstiness": AxisSpec(type="float", doc="shape of gamma arrivals", minimum=1e-3),
}
_WORKLOAD_AXES = {
    name: AxisSpec(type="int", doc=doc, minimum=1)
    for name, doc in {
        "requests": "requests in all",
        "input_len": "tokens of a prompt",
        "output_len": "tokens to generate",
        "prefix_len": "tokens that prompts of a group share",
        "groups": "different prefixes",
        "sessions": "conversations",
        "turns": "requests of a conversation",
        "turn_len": "new tokens of a later turn",
    }.items()
}
_ENGINE_AXES = {
    name: AxisSpec(type=kind, doc=doc, minimum=1 if kind == "int" else None)
    for name, kind, doc in (
        ("tensor_parallel", "int", "GPUs that share a layer"),
        ("pipeline_parallel", "int", "GPUs that layers are spread over"),
        ("data_parallel", "int", "copies of the model"),
        ("expert_parallel", "bool", "whether experts are spread over GPUs"),
        ("max_num_seqs", "int", "most sequences in a batch"),
        ("max_batched_tokens", "int", "most tokens in a step"),
        ("max_model_len", "int", "longest context"),
        ("eager", "bool", "without CUDA graphs and compilation"),
        ("prefix_caching", "bool", "whether equal prefixes are computed once"),
        ("dtype", "str", "type of the weights"),
        ("kv_cache_dtype", "str", "type of the cache"),
    )
}
SERVING_AXES: Mapping[str, AxisSpec] = {**_LOAD_AXES, **_WORKLOAD_AXES, **_ENGINE_AXES}
"""Everything that can be swept."""

RATE_AXES = ("request_rate", "session_rate")
"""Axes that make an open loop: what starts per second."""

ENGINE_AXES = frozenset(_ENGINE_AXES)
"""Axes whose values need another start of the engine."""

WORKLOAD_AXES = frozenset(_WORKLOAD_AXES)
"""Axes that are fields of the workload."""
