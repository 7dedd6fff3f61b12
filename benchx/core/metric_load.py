"""Metrics of a whole load and of its client (`core.metric` is where to import them from)."""

from __future__ import annotations

from benchx.core.metric_base import SERVING, Direction, Role, define

CLIENT_LAG = define(
    id="client_lag_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="send lag of the client",
    formula="sent - intended send time: the client's own delay and waiting for a slot",
)

LOOP_LAG = define(
    id="loop_lag_ms",
    unit="ms",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="receive lag of the client",
    formula="lateness of a 5 ms timer in the client's event loop: how late a byte may be stamped",
)

CLIENT_CPU = define(
    id="client_cpu_share",
    unit="1",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="CPU share of the client",
    formula="processor time / wall time of the busiest client process",
)

REQUEST_THROUGHPUT = define(
    id="request_throughput_req_s",
    unit="req/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("output_throughput_tok_s", "output_tokens_mean"),
    levels=SERVING,
    label="request throughput",
    formula="ok requests / wall time from first intended send to last end",
)

INPUT_THROUGHPUT = define(
    id="input_throughput_tok_s",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("request_throughput_req_s", "input_tokens_mean"),
    levels=SERVING,
    label="input throughput",
    formula="prompt tokens of ok requests / wall time",
)

OUTPUT_THROUGHPUT = define(
    id="output_throughput_tok_s",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.PRIMARY,
    levels=SERVING,
    label="output throughput",
    formula="output tokens of ok requests / wall time",
)

TOTAL_THROUGHPUT = define(
    id="total_throughput_tok_s",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("input_throughput_tok_s", "output_throughput_tok_s"),
    levels=SERVING,
    label="total throughput",
    formula="(prompt + output tokens) of ok requests / wall time",
)

OUTPUT_PER_GPU = define(
    id="output_throughput_tok_s_per_gpu",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("output_throughput_tok_s",),
    levels=SERVING,
    denominator="gpu",
    label="output throughput per GPU",
    formula="output_throughput_tok_s / GPUs observed",
)

TOTAL_PER_GPU = define(
    id="total_throughput_tok_s_per_gpu",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("total_throughput_tok_s",),
    levels=SERVING,
    denominator="gpu",
    label="total throughput per GPU",
    formula="total_throughput_tok_s / GPUs observed",
)

STEADY_OUTPUT = define(
    id="steady_output_throughput_tok_s",
    unit="tok/s",
    direction=Direction.HIGHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="steady output throughput",
    formula=(
        "output tokens that arrived in the longest time with >= 95 % of the plateau in flight, "
        "between the first end and the last send / that time; absent where it is shorter than two "
        "lifetimes of a request"
    ),
)

STEADY_REQUESTS = define(
    id="steady_request_throughput_req_s",
    unit="req/s",
    direction=Direction.HIGHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="steady request throughput",
    formula="ok requests that ended in the time of steady_output_throughput_tok_s / that time",
)

GOODPUT = define(
    id="goodput_req_s",
    unit="req/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("goodput_share", "request_throughput_req_s", "error_rate"),
    levels=SERVING,
    label="goodput",
    formula="ok requests that meet every limit of the SLO, counted from intended start / wall time",
)

GOODPUT_SHARE = define(
    id="goodput_share",
    unit="1",
    direction=Direction.HIGHER,
    role=Role.PRIMARY,
    levels=SERVING,
    label="SLO attainment",
    formula=(
        "requests that are ok and meet every limit of the SLO / all requests, those that were due "
        "and never sent included"
    ),
)

ERROR_RATE = define(
    id="error_rate",
    unit="1",
    direction=Direction.LOWER,
    role=Role.PRIMARY,
    levels=SERVING,
    label="error rate",
    formula="requests that are not ok / all requests, those that were due and never sent included",
)

OVERDUE = define(
    id="overdue_requests",
    unit="requests",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="due, never sent",
    formula=(
        "requests of an open loop whose time had come and that were not sent before the load was "
        "stopped"
    ),
)

OFFERED_RATE = define(
    id="offered_rate_req_s",
    unit="req/s",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="offered rate",
    formula=(
        "starts that were due in an open loop, sent or not / time between the first and the last "
        "of them; of a chained data set each start is a session"
    ),
)

ACHIEVED_SHARE = define(
    id="achieved_rate_share",
    unit="1",
    direction=Direction.HIGHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="achieved / offered rate",
    formula=(
        "completions per second / starts per second, each between the first and the last tenth of "
        "them: below 1 the server falls behind; see serving.keeping_up"
    ),
)

WAIT_GROWTH = define(
    id="wait_growth_ratio",
    unit="1",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="growth of the wait, s/s",
    formula=(
        "(median wait for the first token, from the intended start, of the last third of the "
        "requests - that of the first third) / time between these thirds"
    ),
)

DURATION = define(
    id="duration_s",
    unit="s",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="wall time",
    formula="first intended send to last end, draining included",
)

IN_FLIGHT = define(
    id="in_flight_mean",
    unit="requests",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="requests in flight",
    formula="sum over requests of (end - sent) / wall time",
)

IN_FLIGHT_MAX = define(
    id="in_flight_max",
    unit="requests",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="most requests in flight",
    formula="most requests that were sent and not ended at one time",
)

INPUT_TOKENS = define(
    id="input_tokens_mean",
    unit="tok",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="prompt length",
    formula="mean prompt tokens of ok requests, by the server's count where it gives one",
)

OUTPUT_TOKENS = define(
    id="output_tokens_mean",
    unit="tok",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="output length",
    formula="mean output tokens of ok requests, by the server's count where it gives one",
)

CHUNK_TOKENS = define(
    id="chunk_tokens_mean",
    unit="tok",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="tokens per chunk",
    formula=(
        "output tokens, reasoning that was never sent excluded / chunks with payload, over ok "
        "requests that were streamed"
    ),
)

CACHED_SHARE = define(
    id="cached_token_share",
    unit="1",
    direction=Direction.NEITHER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="cached share of prompts",
    formula="cached / all prompt tokens of ok requests whose usage tells both",
)

SPENT = define(
    id="spent_usd",
    unit="USD",
    direction=Direction.LOWER,
    role=Role.DIAGNOSTIC,
    levels=SERVING,
    label="charged by the service",
    formula=(
        "sum of usage.cost over all requests of the point that tell it, those of its warm-up and "
        "of every load of a search included"
    ),
)

SLO_CONCURRENCY = define(
    id="slo_in_flight_max",
    unit="requests",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("goodput_share",),
    levels=SERVING,
    label="highest concurrency within the SLO",
    formula="largest concurrency tried at which enough requests meet the SLO (goodput_share)",
)

SLO_RATE = define(
    id="slo_rate_req_s",
    unit="req/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("goodput_share",),
    levels=SERVING,
    label="highest rate within the SLO",
    formula=(
        "largest request rate tried at which enough requests meet the SLO (goodput_share) and the "
        "server keeps up with the rate"
    ),
)

SLO_SESSION_RATE = define(
    id="slo_session_rate_sessions_s",
    unit="sessions/s",
    direction=Direction.HIGHER,
    role=Role.DERIVED,
    derived_from=("goodput_share",),
    levels=SERVING,
    label="highest session rate within the SLO",
    formula=(
        "largest rate of starting sessions tried at which enough requests meet the SLO "
        "(goodput_share) and the server keeps up with the rate"
    ),
)
