"""The client's own error: a load against a server that knows what it sent and when.

Both sides stamp with the same clock, so the error of one request splits into what lies between
the client's send and the server's read, and between the server's send and the client's stamp. Both
hold the loopback and the scheduling of two processes besides the client itself, so the error is
stated from above. The server's stamps are taken right before its send calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchx.core.errors import RunFailed
from benchx.core.point import Point
from benchx.serving.groundtruth.process import GroundTruth
from benchx.serving.groundtruth.stream import Pace, Truth
from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_schedule import OpenLoop, starts_s
from benchx.serving.load_session import LoadOutcome, client_notes, run_load
from benchx.serving.request import Api, Endpoint, Request, RequestOutcome, RequestResult, TimeLimits
from benchx.serving.worker_job import LoadJob

TTFT_MEAN_LIMIT_MS = 5.0
TTFT_P99_LIMIT_MS = 20.0
TPOT_LIMIT = 0.005

_LEAST_REQUESTS = 32
_MOST_TOKENS = 256
_LETTERS_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class CalibrationLoad:
    """What to send.

    Attributes:
        concurrency: Streams of a closed loop; None for an open loop.
        rate_req_s: Requests per second of an open loop (Poisson); None for a closed loop.
        requests: In all.
        prompt_chars: Letters of each prompt.
        output_tokens: Tokens of each answer.
        pace: Schedule of the server.
        workers: Client processes; None chooses.
    """

    concurrency: int | None = None
    rate_req_s: float | None = None
    requests: int
    prompt_chars: int = 400
    output_tokens: int
    pace: Pace
    api: Api = "chat"
    workers: int | None = None

    @property
    def label(self) -> str:
        """`concurrency 64` or `40 req/s`."""
        if self.rate_req_s is not None:
            return f"{self.rate_req_s:g} req/s"
        return f"concurrency {self.concurrency}"


def loads_of(points: Sequence[Point], pace: Pace) -> tuple[CalibrationLoad, ...]:
    """One load for each concurrency or rate among serving points, with their longest lengths.

    Answers are cut at 256 tokens and closed loops at two rounds: the error shows in the first.
    """
    longest: dict[tuple[int | None, float | None], CalibrationLoad] = {}
    for point in points:
        known = point.params
        concurrency = int(known["concurrency"]) if "concurrency" in known else None
        rate = float(known["request_rate"]) if "request_rate" in known else None
        if point.kind != "serving" or (concurrency is None and rate is None):
            continue
        earlier = longest.get((concurrency, rate))
        longest[concurrency, rate] = CalibrationLoad(
            concurrency=concurrency,
            rate_req_s=rate,
            requests=max(2 * (concurrency or 0), int(10 * (rate or 0)), _LEAST_REQUESTS),
            prompt_chars=max(
                _LETTERS_PER_TOKEN * int(known.get("input_len", 100)),
                earlier.prompt_chars if earlier else 0,
            ),
            output_tokens=max(
                min(int(known.get("output_len", 128)), _MOST_TOKENS),
                earlier.output_tokens if earlier else 0,
            ),
            pace=pace,
        )
    return tuple(longest.values())


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How far the client's figures are from the truth.

    Attributes:
        requests: Requests sent.
        lost: Requests that were not ok, or that the server does not know.
        wrong_tokens: Requests whose token count differs from the truth.
        ttft_error_ms_mean: Client's TTFT minus the server's, mean.
        ttft_error_ms_p99: Its 99th percentile.
        receive_lag_ms_mean: Server's send of the first token to the client's stamp.
        receive_lag_ms_p99: Its 99th percentile.
        tpot_error: |client's mean TPOT / server's - 1|, over all requests together.
        send_lag_ms_p99: Intended to actual send (open loop; in a closed loop it is a lane's own).
        server_late_ms_p99: How far the server itself was behind its schedule.
        cpu_ms_per_1000_tokens: Processor time of all client processes.
        tokens_per_s: Tokens received per second of wall time.
        peak_rss_bytes: Of the largest client process.
        notes: Why the client was the limit, if it was.
    """

    requests: int
    lost: int
    wrong_tokens: int
    ttft_error_ms_mean: float
    ttft_error_ms_p99: float
    receive_lag_ms_mean: float
    receive_lag_ms_p99: float
    tpot_error: float
    send_lag_ms_p99: float
    server_late_ms_p99: float
    cpu_ms_per_1000_tokens: float
    tokens_per_s: float
    peak_rss_bytes: int
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Nothing lost, and every error within its limit."""
        return (
            not self.lost
            and not self.wrong_tokens
            and abs(self.ttft_error_ms_mean) <= TTFT_MEAN_LIMIT_MS
            and self.ttft_error_ms_p99 <= TTFT_P99_LIMIT_MS
            and self.tpot_error <= TPOT_LIMIT
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data with the verdict."""
        return asdict(self) | {"passed": self.passed}


def calibrate_client(load: CalibrationLoad) -> Calibration:
    """Run the load against the bundled server and compare.

    Raises:
        RunFailed: The server or a client process did not start, or nothing was answered.
    """
    requests = [
        Request(
            index=index,
            prompt=f"{index} " + "x" * load.prompt_chars,
            max_tokens=load.output_tokens,
            extra={"user": str(index)},
        )
        for index in range(load.requests)
    ]
    with GroundTruth(load.pace) as server:
        job = LoadJob(
            endpoint=Endpoint(base_url=server.base_url, api=load.api, model="truth"),
            limits=TimeLimits(),
            plan=_plan(load),
            chains=chains_of(requests),
        )
        outcome = run_load(job, workers=load.workers, isolated=True)
        truths = server.stop()
    return compare(outcome, truths, open_loop=load.rate_req_s is not None)


def _plan(load: CalibrationLoad) -> LoadPlan:
    if load.rate_req_s is None:
        return LoadPlan(concurrency=load.concurrency)
    loop = OpenLoop(rate_req_s=load.rate_req_s)
    return LoadPlan(concurrency=load.concurrency, starts_s=starts_s(loop, load.requests, seed=0))


def compare(outcome: LoadOutcome, truths: Mapping[str, Truth], *, open_loop: bool) -> Calibration:
    """Client's results against the server's truths, by the index of the request.

    Raises:
        RunFailed: No request can be compared.
    """
    pairs = [
        (result, truths[str(result.index)])
        for result in outcome.results
        if result.outcome is RequestOutcome.OK and str(result.index) in truths
    ]
    if not pairs:
        raise RunFailed(
            f"none of {len(outcome.results)} requests can be compared with what was sent: "
            + (", ".join(sorted({r.reason or r.outcome.value for r in outcome.results})) or "none")
        )
    receive = [(result.first_token_ns or 0) / 1e6 - truth.first_ns / 1e6 for result, truth in pairs]
    errors = [_ttft_error_ms(result, truth) for result, truth in pairs]
    tokens = sum(result.client_tokens for result, _ in pairs)
    wall_s = max(report.wall_s for report in outcome.reports)
    cpu_s = sum(report.cpu_s for report in outcome.reports)
    sends = [(r.sent_ns - r.intended_ns) / 1e6 for r in outcome.results if r.sent_ns is not None]
    return Calibration(
        requests=len(outcome.results),
        lost=len(outcome.results) - len(pairs),
        wrong_tokens=sum(result.output_tokens != truth.tokens for result, truth in pairs),
        ttft_error_ms_mean=float(np.mean(errors)),
        ttft_error_ms_p99=_p99(errors),
        receive_lag_ms_mean=float(np.mean(receive)),
        receive_lag_ms_p99=_p99(receive),
        tpot_error=_tpot_error(pairs),
        send_lag_ms_p99=_p99(sends),
        server_late_ms_p99=_p99([truth.late_ns / 1e6 for _, truth in pairs]),
        cpu_ms_per_1000_tokens=1e6 * cpu_s / tokens if tokens else float("nan"),
        tokens_per_s=tokens / wall_s,
        peak_rss_bytes=max(report.peak_rss_bytes for report in outcome.reports),
        notes=client_notes(outcome.reports, outcome.results, open_loop=open_loop),
    )


def _p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99))


def _ttft_error_ms(result: RequestResult, truth: Truth) -> float:
    ours_ns = (result.first_token_ns or 0) - (result.sent_ns or 0)
    return (ours_ns - (truth.first_ns - truth.received_ns)) / 1e6


def _tpot_error(pairs: Sequence[tuple[RequestResult, Truth]]) -> float:
    """Relative difference of the mean times per token; 0 when answers have one token."""
    ours = sum((r.last_token_ns or 0) - (r.first_token_ns or 0) for r, _ in pairs)
    truth = sum(t.last_ns - t.first_ns for _, t in pairs)
    return abs(ours / truth - 1) if truth else 0.0
