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
from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.groundtruth.process import GroundTruth
from benchx.serving.groundtruth.stream import Pace, Truth
from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_schedule import OpenLoop, starts_s
from benchx.serving.load_session import LoadOutcome, client_notes, run_load
from benchx.serving.request import Api, Endpoint, Request, RequestOutcome, RequestResult, TimeLimits
from benchx.serving.worker_job import LoadJob
from benchx.stats.summary import percentile_or_none

TTFT_MEAN_LIMIT_MS = 5.0
TTFT_P99_LIMIT_MS = 20.0
TPOT_LIMIT = 0.005

_LEAST_REQUESTS = 32
_LEAST_TOKENS, _MOST_TOKENS = 2, 256
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
        chunk_usage: Whether every chunk carries usage, as engines that offer it are asked for.
        workers: Client processes; None chooses.
    """

    concurrency: int | None = None
    rate_req_s: float | None = None
    requests: int
    prompt_chars: int = 400
    output_tokens: int
    pace: Pace
    chunk_usage: bool = False
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

    Answers are cut at 256 tokens and closed loops at two rounds: the error shows in the first. They
    have two tokens at least, since one alone has no time per token.
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
                earlier.output_tokens if earlier else _LEAST_TOKENS,
            ),
            pace=pace,
            chunk_usage=_asks_chunk_usage(point) or (earlier is not None and earlier.chunk_usage),
        )
    return tuple(longest.values())


def _asks_chunk_usage(point: Point) -> bool:
    """Whether the runner asks this point's engine for usage in every chunk."""
    engine = ENGINES.get(point.backend)
    return engine.capabilities(EngineSettings(name=point.backend, model="truth")).chunk_usage


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How far the client's figures are from the truth. None: what there is gives no such figure.

    A 99th percentile wants 500 requests, see `stats.summary.percentile_or_none`.

    Attributes:
        requests: Requests sent.
        lost: Requests that were not ok, that have no first token, or that the server does not know.
        wrong_tokens: Requests whose token count differs from the truth.
        ttft_error_ms_mean: Client's TTFT minus the server's, mean.
        ttft_error_ms_p99: Its 99th percentile.
        ttft_error_ms_max: The largest one.
        receive_lag_ms_mean: Server's send of the first token to the client's stamp.
        receive_lag_ms_p99: Its 99th percentile.
        tpot_error: |client's mean TPOT / server's - 1|, over all requests together; None where no
            answer has a second token.
        send_lag_ms_p99: Intended to actual send (open loop; in a closed loop it is a lane's own).
        server_late_ms_p99: How far the server itself was behind its schedule.
        cpu_ms_per_1000_tokens: Processor time of all client processes; None without a token.
        tokens_per_s: Tokens received per second of wall time.
        peak_rss_bytes: Of the largest client process.
        notes: Why the client was the limit, if it was.
    """

    requests: int
    lost: int
    wrong_tokens: int
    ttft_error_ms_mean: float
    ttft_error_ms_p99: float | None
    ttft_error_ms_max: float
    receive_lag_ms_mean: float
    receive_lag_ms_p99: float | None
    tpot_error: float | None
    send_lag_ms_p99: float | None
    server_late_ms_p99: float | None
    cpu_ms_per_1000_tokens: float | None
    tokens_per_s: float
    peak_rss_bytes: int
    notes: tuple[str, ...]

    @property
    def ttft_error_ms_tail(self) -> float:
        """The 99th percentile of the error of TTFT, or the largest where too few support it."""
        tail = self.ttft_error_ms_p99
        return self.ttft_error_ms_max if tail is None else tail

    @property
    def passed(self) -> bool:
        """Nothing lost, something compared, and every error within its limit."""
        return (
            not self.lost
            and not self.wrong_tokens
            and abs(self.ttft_error_ms_mean) <= TTFT_MEAN_LIMIT_MS
            and self.ttft_error_ms_tail <= TTFT_P99_LIMIT_MS
            and self.tpot_error is not None
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
            endpoint=Endpoint(
                base_url=server.base_url,
                api=load.api,
                model="truth",
                ask_chunk_usage=load.chunk_usage,
            ),
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
    found = (_pair(result, truths.get(str(result.index))) for result in outcome.results)
    pairs = [pair for pair in found if pair is not None]
    if not pairs:
        raise RunFailed(
            f"none of {len(outcome.results)} requests can be compared with what was sent: "
            + (", ".join(sorted({r.reason or r.outcome.value for r in outcome.results})) or "none")
        )
    receive = [pair.receive_lag_ms for pair in pairs]
    errors = [pair.ttft_error_ms for pair in pairs]
    tokens = sum(pair.result.client_tokens for pair in pairs)
    wall_s = max(report.wall_s for report in outcome.reports)
    cpu_s = sum(report.cpu_s for report in outcome.reports)
    sends = [(r.sent_ns - r.intended_ns) / 1e6 for r in outcome.results if r.sent_ns is not None]
    return Calibration(
        requests=len(outcome.results),
        lost=len(outcome.results) - len(pairs),
        wrong_tokens=sum(pair.result.output_tokens != pair.truth.tokens for pair in pairs),
        ttft_error_ms_mean=float(np.mean(errors)),
        ttft_error_ms_p99=percentile_or_none(errors, 99),
        ttft_error_ms_max=max(errors),
        receive_lag_ms_mean=float(np.mean(receive)),
        receive_lag_ms_p99=percentile_or_none(receive, 99),
        tpot_error=_tpot_error(pairs),
        send_lag_ms_p99=percentile_or_none(sends, 99),
        server_late_ms_p99=percentile_or_none([pair.truth.late_ns / 1e6 for pair in pairs], 99),
        cpu_ms_per_1000_tokens=1e6 * cpu_s / tokens if tokens else None,
        tokens_per_s=tokens / wall_s,
        peak_rss_bytes=max(report.peak_rss_bytes for report in outcome.reports),
        notes=client_notes(outcome.reports, outcome.results, open_loop=open_loop),
    )


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """One request as both sides saw it; stamps of the client that are known."""

    result: RequestResult
    truth: Truth
    sent_ns: int
    first_ns: int
    last_ns: int

    @property
    def receive_lag_ms(self) -> float:
        return (self.first_ns - self.truth.first_ns) / 1e6

    @property
    def ttft_error_ms(self) -> float:
        truth_ns = self.truth.first_ns - self.truth.received_ns
        return (self.first_ns - self.sent_ns - truth_ns) / 1e6


def _pair(result: RequestResult, truth: Truth | None) -> _Pair | None:
    """None for a request that is lost."""
    sent, first, last = result.sent_ns, result.first_token_ns, result.last_token_ns
    if truth is None or result.outcome is not RequestOutcome.OK:
        return None
    if sent is None or first is None or last is None:
        return None
    return _Pair(result=result, truth=truth, sent_ns=sent, first_ns=first, last_ns=last)


def _tpot_error(pairs: Sequence[_Pair]) -> float | None:
    """Relative difference of the mean times per token; None when answers have one token."""
    truth = sum(pair.truth.last_ns - pair.truth.first_ns for pair in pairs)
    return abs(sum(pair.last_ns - pair.first_ns for pair in pairs) / truth - 1) if truth else None
