"""Metrics of one request as its client sees it (`core.metric` is where to import them from).

Times count from `sent` (its bytes handed to the socket) unless said otherwise.
"""

from __future__ import annotations

from benchx.core.metric_base import SERVING, Direction, Role, define

TTFT = define(
    id="ttft_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.PRIMARY,
    levels=SERVING,
    label="time to first token",
    formula=(
        "first generated payload of any kind (text, reasoning, tool call; no role-only chunk) - "
        "sent"
    ),
)

TTFT_INTENDED = define(
    id="ttft_intended_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DERIVED,
    derived_from=("ttft_ms", "client_lag_ms"),
    levels=SERVING,
    label="TTFT from intended start",
    formula="first generated payload - intended send time, so that waiting for a slot counts",
)

TTFR = define(
    id="ttfr_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="time to first reasoning",
    formula="first reasoning text - sent",
)

TTFO = define(
    id="ttfo_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="time to first visible output",
    formula="first text or tool call that is not reasoning - sent",
)

FIRST_BYTE = define(
    id="first_byte_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="time to first byte",
    formula="first byte of the response (its headers) - sent",
)

TPOT = define(
    id="tpot_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.PRIMARY,
    levels=SERVING,
    label="time per output token",
    formula=(
        "(last payload - first payload) / (output tokens - tokens of the first chunk, 1 if unknown "
        "- tokens of reasoning that was counted and never sent)"
    ),
)

ITL = define(
    id="itl_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="inter-token latency",
    formula=(
        "gap before a chunk / its tokens, once per token, pooled (percentiles need as many "
        "requests as others do samples); absent if chunks hold unknown counts"
    ),
)

CHUNK_GAP = define(
    id="chunk_gap_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="gap between chunks",
    formula="time between two chunks with payload of one request, pooled",
)

E2E = define(
    id="e2e_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DERIVED,
    derived_from=("ttft_ms", "tpot_ms", "output_tokens_mean"),
    levels=SERVING,
    label="end-to-end latency",
    formula="last generated payload (not streamed: end of the response) - sent",
)

E2E_INTENDED = define(
    id="e2e_intended_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DERIVED,
    derived_from=("e2e_ms", "client_lag_ms"),
    levels=SERVING,
    label="end-to-end latency from intended start",
    formula="last generated payload - intended send time",
)

INTERACTIVITY = define(
    id="interactivity_tok_s",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("tpot_ms",),
    levels=SERVING,
    denominator="request",
    label="interactivity",
    formula="1000 / tpot_ms of each request; _p99: 99 % of requests reach or exceed it",
)

E2E_INTERACTIVITY = define(
    id="e2e_interactivity_tok_s",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("e2e_ms", "output_tokens_mean"),
    levels=SERVING,
    denominator="request",
    label="end-to-end interactivity",
    formula="output tokens / e2e of each request; _p99: 99 % of requests reach or exceed it",
)

PREFILL_SPEED = define(
    id="prefill_speed_tok_s",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("ttft_ms", "input_tokens_mean"),
    levels=SERVING,
    denominator="request",
    label="prompt tokens per TTFT",
    formula=(
        "prompt tokens, cached ones excluded / ttft of each request; absent after reasoning that "
        "was never sent; _p99: 99 % of requests reach or exceed it"
    ),
)
