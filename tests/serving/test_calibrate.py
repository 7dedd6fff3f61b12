"""The client against a server that knows the truth, and the arithmetic of the comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import pytest

from benchx.core.errors import RunFailed
from benchx.core.point import Point
from benchx.serving.calibrate import (
    Calibration,
    CalibrationLoad,
    calibrate_client,
    compare,
    loads_of,
)
from benchx.serving.groundtruth.process import GroundTruth
from benchx.serving.groundtruth.stream import Pace, Stream, Truth
from benchx.serving.load import ClientReport
from benchx.serving.load_session import LoadOutcome
from benchx.serving.request import RequestOutcome, RequestResult

MS = 1_000_000
FAST = Pace(ttft_ms=30.0, token_ms=3.0)


def result(index: int, *, sent: float, first: float, last: float, tokens: int = 3) -> RequestResult:
    return RequestResult(
        index=index,
        outcome=RequestOutcome.OK,
        max_tokens=tokens,
        intended_ns=int(sent * MS),
        sent_ns=int(sent * MS),
        first_token_ns=int(first * MS),
        last_token_ns=int(last * MS),
        end_ns=int(last * MS),
        arrivals_ns=(int(first * MS), int(last * MS)),
        chunk_tokens=(1, tokens - 1),
        client_tokens=tokens,
    )


def truth(index: int, *, received: float, first: float, last: float, tokens: int = 3) -> Truth:
    return Truth(
        key=str(index),
        received_ns=int(received * MS),
        first_ns=int(first * MS),
        last_ns=int(last * MS),
        tokens=tokens,
    )


REPORT = ClientReport(cpu_s=0.003, wall_s=2.0, loop_lag_ms=(0.1,), peak_rss_bytes=10)


def calibration(*pairs: tuple[RequestResult, Truth]) -> Calibration:
    outcome = LoadOutcome(results=tuple(r for r, _ in pairs), reports=(REPORT,))
    return compare(outcome, {t.key: t for _, t in pairs}, open_loop=False)


def test_the_error_is_the_clients_ttft_minus_the_servers() -> None:
    found = calibration(
        (result(0, sent=0, first=104, last=126), truth(0, received=1, first=101, last=121))
    )
    assert found.ttft_error_ms_mean == pytest.approx(4)
    assert found.receive_lag_ms_mean == pytest.approx(3)
    assert found.tpot_error == pytest.approx(0.1)
    assert found.cpu_ms_per_1000_tokens == pytest.approx(1000)
    assert found.tokens_per_s == 1.5


def test_a_request_that_the_server_does_not_know_is_lost() -> None:
    good = (result(0, sent=0, first=100, last=120), truth(0, received=0, first=100, last=120))
    outcome = LoadOutcome(results=(good[0], replace(good[0], index=1)), reports=(REPORT,))
    found = compare(outcome, {"0": good[1]}, open_loop=False)
    assert found.lost == 1
    assert not found.passed


def test_a_load_without_an_answer_is_an_error_in_the_requests_own_words() -> None:
    lost = replace(
        result(0, sent=0, first=1, last=2), outcome=RequestOutcome.HTTP_5XX, reason="HTTP 503"
    )
    outcome = LoadOutcome(results=(lost, replace(lost, index=1)), reports=(REPORT,))
    with pytest.raises(RunFailed, match=r"none of 2 requests can be compared .*: HTTP 503$"):
        compare(outcome, {}, open_loop=False)


def test_a_wrong_count_of_tokens_fails() -> None:
    pair = (
        result(0, sent=0, first=100, last=120),
        truth(0, received=0, first=100, last=120, tokens=4),
    )
    found = calibration(pair)
    assert found.wrong_tokens == 1
    assert not found.passed


def test_a_request_without_a_first_token_is_lost_and_makes_no_figure() -> None:
    timed = result(0, sent=0, first=100, last=120)
    outcome = LoadOutcome(
        results=(timed, replace(timed, index=1, first_token_ns=None)), reports=(REPORT,)
    )
    truths = {str(i): truth(i, received=0, first=100, last=120) for i in range(2)}
    found = compare(outcome, truths, open_loop=False)
    assert (found.lost, found.ttft_error_ms_mean, found.receive_lag_ms_mean) == (1, 0, 0)


def test_where_no_time_per_token_can_be_compared_nothing_passes() -> None:
    pair = (
        result(0, sent=0, first=100, last=100, tokens=1),
        truth(0, received=0, first=100, last=100, tokens=1),
    )
    found = calibration(pair)
    assert found.tpot_error is None
    assert not found.passed


@pytest.mark.parametrize(("requests", "supported"), [(499, False), (500, True)])
def test_too_few_requests_have_no_99th_percentile_and_are_judged_by_the_worst(
    requests: int, supported: bool
) -> None:
    good = [
        (
            result(i, sent=0, first=100, last=120),
            truth(i, received=0, first=100, last=120),
        )
        for i in range(requests - 1)
    ]
    late = (
        result(requests, sent=0, first=200, last=220),
        truth(requests, received=0, first=100, last=120),
    )
    found = calibration(*good, late)
    assert (found.ttft_error_ms_p99 is not None) is supported
    assert (found.send_lag_ms_p99 is not None) is supported
    assert found.ttft_error_ms_max == 100
    assert found.passed is supported
    assert calibration(*good).passed


def test_figures_that_don_t_exist_are_null_in_json() -> None:
    one = (
        result(0, sent=0, first=100, last=120, tokens=0),
        truth(0, received=0, first=100, last=120, tokens=0),
    )
    plain = calibration(one).to_json()
    assert plain["cpu_ms_per_1000_tokens"] is None
    assert json.loads(json.dumps(plain, allow_nan=False)) is not None


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_the_server_tells_usage_in_every_chunk_where_it_is_asked_for(
    api: Literal["chat", "completions"],
) -> None:
    load = CalibrationLoad(
        concurrency=2, requests=4, output_tokens=8, pace=FAST, api=api, chunk_usage=True
    )
    found = calibrate_client(load)
    assert (found.lost, found.wrong_tokens) == (0, 0)
    stream = Stream(
        total=8,
        chat=api == "chat",
        pace=FAST,
        prompt_tokens=5,
        chunk_usage=True,
        truth=Truth(key="", received_ns=0),
    )
    chunks = [stream.next_chunk(0) for _ in range(8)]
    for tokens, chunk in enumerate(chunks, 1):
        usage = {"prompt_tokens": 5, "total_tokens": 5 + tokens, "completion_tokens": tokens}
        assert json.loads(chunk.split(b"data: ")[1].split(b"\n")[0])["usage"] == usage


@pytest.mark.parametrize(
    ("engine", "asked"), [("vllm", True), ("sglang", True), ("endpoint", False)]
)
def test_an_engine_s_loads_are_tried_with_the_usage_that_it_is_asked_for(
    engine: str, asked: bool
) -> None:
    point = Point(
        kind="serving",
        subject="random",
        backend=engine,
        params={"concurrency": 1, "input_len": 16, "output_len": 1},
    )
    (load,) = loads_of([point], FAST)
    assert (load.chunk_usage, load.output_tokens) == (asked, 2)


@pytest.mark.parametrize(
    "load",
    [
        CalibrationLoad(concurrency=4, requests=12, output_tokens=8, pace=FAST),
        CalibrationLoad(rate_req_s=100.0, requests=12, output_tokens=8, pace=FAST),
        CalibrationLoad(concurrency=2, requests=4, output_tokens=8, pace=FAST, api="completions"),
    ],
    ids=["closed loop", "open loop", "completions"],
)
def test_a_real_load_loses_nothing_and_is_never_early(load: CalibrationLoad) -> None:
    found = calibrate_client(load)
    assert (found.requests, found.lost, found.wrong_tokens) == (load.requests, 0, 0)
    assert found.receive_lag_ms_mean >= 0
    assert found.ttft_error_ms_mean >= 0


def test_the_server_keeps_its_schedule_and_knows_when_it_did_not() -> None:
    stream = Stream(
        total=5,
        chat=True,
        pace=Pace(ttft_ms=10.0, token_ms=2.0, chunk_tokens=2),
        prompt_tokens=1,
        truth=Truth(key="", received_ns=0),
    )
    assert stream.due_ns() == 10 * MS
    stream.next_chunk(11 * MS)
    assert stream.due_ns() == 14 * MS
    stream.next_chunk(17 * MS)
    last = stream.next_chunk(18 * MS)
    assert (stream.truth.tokens, stream.truth.late_ns, stream.truth.max_gap_ns) == (
        5,
        3 * MS,
        6 * MS,
    )
    assert b'"finish_reason":"length"' in last


def test_the_server_ends_with_its_parent() -> None:
    with GroundTruth(FAST) as server:
        process = server._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=20) == 0


def test_the_loads_of_a_scenario_are_tried_once_each_with_its_longest_answers() -> None:
    points = [
        Point(
            kind="serving",
            subject="random",
            backend="endpoint",
            params={"concurrency": many, "input_len": 1024, "output_len": length},
        )
        for many in (1, 64)
        for length in (16, 100)
    ]
    loads = loads_of(points, FAST)
    assert [(one.label, one.requests, one.output_tokens) for one in loads] == [
        ("concurrency 1", 32, 100),
        ("concurrency 64", 128, 100),
    ]
