"""Metrics that the server tells while the load runs (`serving.server_summary`), and its energy.

`core.metric` is where to import them from.
"""

from __future__ import annotations

from benchx.core.metric_base import SERVING, Direction, Role, define

SERVER_QUEUE = define(
    id="server_queue_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="queueing at the server",
    formula="time that a request waited at the server before its prefill, by the server's metrics",
)

SERVER_PREFILL = define(
    id="server_prefill_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="prefill at the server",
    formula="prefill time of a request by the server's metrics, steps shared with others included",
)

KV_USAGE = define(
    id="server_kv_usage_share",
    unit="1",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="KV cache in use",
    formula="largest share of the server's KV cache in use, read once a second",
)

PREEMPTIONS = define(
    id="server_preemptions",
    unit="preemptions",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="preemptions",
    formula="requests thrown out of the server's cache to make room, and computed again",
)

PREFIX_HITS = define(
    id="server_prefix_hit_share",
    unit="1",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="prefix cache hits",
    formula="prompt tokens found in the server's own prefix cache / all, by its metrics",
)

EXTERNAL_HITS = define(
    id="server_external_hit_share",
    unit="1",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="hits outside",
    formula=(
        "prompt tokens loaded from host memory or other machines / all, by the server's metrics"
    ),
)

ACCEPTANCE = define(
    id="acceptance_length_tokens",
    unit="tok",
    direction=Direction.HIGHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="acceptance length",
    formula="1 + accepted / drafts of speculative decoding, by the server's metrics",
)

ENERGY = define(
    id="output_energy_j_tok",
    unit="J/tok",
    direction=Direction.LOWER,
    role=Role.DERIVED,
    derived_from=("output_throughput_tok_s",),
    levels=SERVING,
    label="energy per output token",
    formula="mean power of the GPU x wall time / output tokens of ok requests; one GPU only",
)
