"""The load generator: how many are under way, when they start, and that nothing is lost."""

from __future__ import annotations

import asyncio
import io
import math
import signal
import threading
import time
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.errors import RunFailed, UsageError
from benchx.serving import worker
from benchx.serving.client import Client
from benchx.serving.load import ClientReport, LoadPlan, LoadRun, chains_of, share_of
from benchx.serving.load_schedule import OpenLoop, scaled_starts_s, starts_s, starts_within
from benchx.serving.load_session import client_notes, equal_streams, run_load
from benchx.serving.metrics import most_in_flight
from benchx.serving.request import Endpoint, Request, RequestResult, TimeLimits
from benchx.serving.worker_job import LoadJob, worker_count

GOOD = (
    b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def requests(count: int, **fields: object) -> tuple[Request, ...]:
    return tuple(Request(index=i, prompt=f"p{i}", max_tokens=2, **fields) for i in range(count))  # type: ignore[arg-type]


def load(
    desk: SimpleNamespace,
    plan: LoadPlan,
    sent: tuple[Request, ...],
    *,
    takes_s: float = 0.02,
    on_result: object = lambda _result: None,
    starts_ns: list[int] | None = None,
) -> tuple[list[RequestResult], ClientReport]:
    """Run a load in this process against a server that answers after a time.

    `starts_ns` gets the time at which the load begins.
    """

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(takes_s)
        writer.write(desk.whole(GOOD))

    results: list[RequestResult] = []

    def keep(result: RequestResult) -> str | None:
        results.append(result)
        return on_result(result)  # type: ignore[operator,no-any-return]

    async def main() -> ClientReport:
        async with desk.scripted(answer) as server:
            endpoint = Endpoint(base_url=server.url, api="chat", model="m")
            async with Client(endpoint, desk.limits) as client:
                run = LoadRun(client, plan, chains_of(sent), keep)
                await run.prepare()
                start_ns = time.monotonic_ns() + 5_000_000
                if starts_ns is not None:
                    starts_ns.append(start_ns)
                return await run.run(start_ns)

    report = asyncio.run(main())
    return sorted(results, key=lambda result: result.index), report


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_a_closed_loop_keeps_exactly_its_concurrency(
    concurrency: int, desk: SimpleNamespace
) -> None:
    results, _ = load(desk, LoadPlan(concurrency=concurrency), requests(2 * concurrency + 1))
    assert [result.outcome for result in results] == ["ok"] * (2 * concurrency + 1)
    assert most_in_flight(results) == concurrency


def test_a_burst_starts_together(desk: SimpleNamespace) -> None:
    apart_ns: list[int] = []
    for _ in range(10):  # other work on the machine can only make it longer
        results, _ = load(desk, LoadPlan(concurrency=50), requests(50), takes_s=0.3)
        assert most_in_flight(results) == 50
        assert all(result.connects == 0 for result in results)
        sends = [result.sent_ns for result in results if result.sent_ns is not None]
        apart_ns.append(max(sends) - min(sends))
        if apart_ns[-1] < 50e6:
            break
    assert min(apart_ns) < 50e6


def test_an_open_loop_does_not_wait_for_the_server(desk: SimpleNamespace) -> None:
    starts = tuple(0.01 * i for i in range(20))
    results, _ = load(desk, LoadPlan(starts_s=starts), requests(20), takes_s=3.0)
    assert most_in_flight(results) == 20
    assert all((result.sent_ns - result.intended_ns) < 2e9 for result in results)


def test_intended_times_are_those_of_the_schedule(desk: SimpleNamespace) -> None:
    starts = (0.0, 0.05, 0.2)
    results, _ = load(desk, LoadPlan(starts_s=starts), requests(3))
    first = results[0].intended_ns
    assert [(result.intended_ns - first) / 1e9 for result in results] == pytest.approx(starts)


def test_waiting_for_a_slot_counts_from_the_intended_start(desk: SimpleNamespace) -> None:
    plan = LoadPlan(starts_s=(0.0, 0.0, 0.0), concurrency=1)
    results, _ = load(desk, plan, requests(3), takes_s=0.1)
    assert most_in_flight(results) == 1
    waits = sorted((result.sent_ns - result.intended_ns) / 1e9 for result in results)
    assert waits[2] > 0.19


def test_requests_of_a_session_follow_one_another_with_their_pause(desk: SimpleNamespace) -> None:
    sent = tuple(
        Request(index=i, max_tokens=2, session=f"s{i % 2}", delay_s=0.05 if i > 1 else 0.0)
        for i in range(6)
    )
    results, _ = load(desk, LoadPlan(concurrency=2), sent)
    for session in ("s0", "s1"):
        mine = [result for result in results if result.session == session]
        for before, after in pairwise(mine):
            assert after.sent_ns - before.end_ns >= 0.05e9


def test_a_load_stops_sending_when_a_result_says_so(desk: SimpleNamespace) -> None:
    results, report = load(
        desk,
        LoadPlan(concurrency=1),
        requests(50),
        on_result=lambda r: "enough" if r.index == 4 else None,
    )
    assert report.stopped == "enough"
    assert 5 <= len(results) <= 7
    assert report.not_sent == 50 - len(results)


def test_a_load_stops_sending_after_its_time(desk: SimpleNamespace) -> None:
    plan = LoadPlan(concurrency=1, duration_s=1.5)
    results, report = load(desk, plan, requests(1000), takes_s=0.25)
    assert 2 <= len(results) <= 8
    assert report.stopped is not None
    assert all(result.outcome == "ok" for result in results)


@pytest.mark.parametrize("how", ["time", "result"])
def test_what_waits_for_a_slot_when_the_load_is_stopped_is_counted_and_never_sent(
    how: str, desk: SimpleNamespace
) -> None:
    plan = LoadPlan(starts_s=(0.0,) * 50, concurrency=1, duration_s=1.0 if how == "time" else None)
    stop = lambda r: "enough" if how == "result" else None  # noqa: E731
    results, report = load(desk, plan, requests(50), takes_s=0.1, on_result=stop)
    assert len(results) < 40
    assert report.not_sent == report.overdue == 50 - len(results)
    (note,) = client_notes([replace(report, cpu_s=0, loop_lag_ms=())], [], open_loop=False)
    assert note.startswith(f"latencies flatter: {report.overdue} requests were due")


def test_what_a_stopped_load_was_late_with_counts_as_due(desk: SimpleNamespace) -> None:
    """Only what was due: the rest is no fault of the server."""

    def hold_up(_: RequestResult) -> str:
        time.sleep(0.5)  # the client is late, and behind it the load is over
        return "enough"

    plan = LoadPlan(starts_s=(0.0, 0.2, 0.3, 60.0))
    results, report = load(desk, plan, requests(4), on_result=hold_up)
    assert len(results) == 1
    assert (report.not_sent, report.overdue, report.due) == (3, 2, 3)


@pytest.mark.parametrize("how", ["time", "result"])
def test_a_stopped_load_does_not_sit_out_a_pause(how: str, desk: SimpleNamespace) -> None:
    plan = LoadPlan(starts_s=(0.0, 30.0), duration_s=2.0 if how == "time" else None)
    paused = Request(index=2, max_tokens=2, session="s", delay_s=30.0)
    sent = (*(replace(one, session="s") for one in requests(1)), *requests(2)[1:], paused)
    began = time.monotonic()
    stop = lambda r: "enough" if how == "result" else None  # noqa: E731
    results, report = load(desk, plan, sent, on_result=stop)
    assert time.monotonic() - began < 20
    assert [result.index for result in results] == [0]
    assert (report.not_sent, report.overdue) == (2, 0)


def test_lanes_start_one_after_the_other_in_a_ramp(desk: SimpleNamespace) -> None:
    begins: list[int] = []
    plan = LoadPlan(concurrency=4, ramp_s=0.4)
    results, _ = load(desk, plan, requests(4), takes_s=0.5, starts_ns=begins)
    sends = sorted(result.sent_ns for result in results)
    after_s = [(sent_ns - begins[0]) / 1e9 for sent_ns in sends]
    assert all(at_s >= 0.1 * lane for lane, at_s in enumerate(after_s))


def test_a_client_that_stops_decoding_is_an_error_and_no_load_without_end(
    desk: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchx.serving.load.DECODE_LIMIT_S", 0.1)
    monkeypatch.setattr(Client, "decode", lambda *_: asyncio.get_running_loop().create_future())
    with pytest.raises(RunFailed, match="stopped decoding; 3 answers are lost"):
        load(desk, LoadPlan(concurrency=1), requests(3))


def test_a_fault_of_the_decoder_fails_the_load_and_names_itself(
    desk: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("benchx.serving.client.decode_steps", broken)
    with pytest.raises(RunFailed, match="could not decode an answer: KeyError: 'a bug'"):
        load(desk, LoadPlan(concurrency=2), requests(4))


def test_the_client_reports_its_own_cost_and_lag(desk: SimpleNamespace) -> None:
    _, report = load(desk, LoadPlan(concurrency=2), requests(10))
    assert 0 < report.cpu_s <= report.wall_s * 1.5
    assert report.loop_lag_ms
    assert report.peak_rss_bytes > 1e6


def report(cpu: float = 0.1, lags: tuple[float, ...] = (0.1,)) -> ClientReport:
    return ClientReport(cpu_s=cpu, wall_s=1.0, loop_lag_ms=lags, peak_rss_bytes=1)


def test_a_client_that_was_the_limit_is_flagged() -> None:
    assert client_notes([report()], [], open_loop=True) == ()
    assert "all of a core" in client_notes([report(cpu=0.95)], [], open_loop=True)[0]
    late = report(lags=(20.0,) * 10)
    assert "seen late" in client_notes([late], [], open_loop=False)[0]


COUNT = st.integers(1, 300)
SEED = st.integers(0, 2**32 - 1)
LOOP = st.builds(
    OpenLoop,
    rate_req_s=st.floats(0.1, 1000),
    arrival=st.sampled_from(["poisson", "constant", "gamma"]),
    burstiness=st.floats(0.1, 10),
    ramp_s=st.floats(0, 100),
    ramp_from_req_s=st.floats(0, 1000),
)


@given(LOOP, COUNT, SEED)
def test_start_times_are_in_order_and_follow_from_the_seed(
    loop: OpenLoop, count: int, seed: int
) -> None:
    times = starts_s(loop, count, seed)
    assert len(times) == count
    assert list(times) == sorted(times)
    assert times[0] >= 0
    assert times == starts_s(loop, count, seed)


@pytest.mark.parametrize(
    ("arrival", "burstiness"), [("poisson", 1.0), ("gamma", 0.5), ("gamma", 4.0)]
)
def test_gaps_have_the_mean_and_the_spread_of_their_distribution(
    arrival: str, burstiness: float
) -> None:
    loop = OpenLoop(rate_req_s=50.0, arrival=arrival, burstiness=burstiness)  # type: ignore[arg-type]
    times = starts_s(loop, 20_000, seed=1)
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(1 / 50, rel=0.03)
    assert deviation / mean == pytest.approx(1 / math.sqrt(burstiness), rel=0.05)


@given(LOOP, st.floats(0.1, 20), SEED)
def test_starts_of_a_duration_are_all_that_lie_in_it(
    loop: OpenLoop, duration_s: float, seed: int
) -> None:
    times = starts_within(loop, duration_s, seed)
    assert all(time_s < duration_s for time_s in times)
    assert starts_s(loop, len(times) + 1, seed)[-1] >= duration_s
    assert times == starts_s(loop, len(times), seed)


def test_a_constant_rate_is_evenly_spaced() -> None:
    assert starts_s(OpenLoop(rate_req_s=4.0, arrival="constant"), 3, 0) == (0.0, 0.25, 0.5)


def test_a_ramp_sends_as_many_as_the_integral_of_its_rate() -> None:
    loop = OpenLoop(rate_req_s=100.0, arrival="constant", ramp_s=10.0, ramp_from_req_s=20.0)
    times = starts_s(loop, 2000, 0)
    assert sum(time_s < 10.0 for time_s in times) == pytest.approx(600, abs=1)
    assert sum(time_s < 5.0 for time_s in times) == pytest.approx(200, abs=1)
    assert sum(10.0 <= time_s < 11.0 for time_s in times) == pytest.approx(100, abs=1)


def test_times_of_a_trace_count_from_its_first_entry_and_must_be_in_order() -> None:
    assert scaled_starts_s([5.0, 5.5, 9.0]) == (0.0, 0.5, 4.0)
    with pytest.raises(UsageError):
        scaled_starts_s([1.0, 0.5])


@given(st.integers(1, 500), st.integers(1, 8), st.integers(0, 100))
def test_shares_of_a_load_add_up(concurrency: int, parts: int, count: int) -> None:
    plan = LoadPlan(concurrency=concurrency, starts_s=tuple(map(float, range(count))))
    shares = [share_of(plan, part, parts) for part in range(parts)]
    assert sum(share.concurrency or 0 for share in shares) == concurrency
    assert sorted(t for share in shares for t in share.starts_s or ()) == list(plan.starts_s or ())


def test_the_number_of_processes_follows_from_the_streams() -> None:
    assert worker_count(None, 256) == 1
    assert worker_count(3, 1) == 3


def rated(rate_req_s: float, tokens: int, limit: int | None = None) -> LoadJob:
    """Ten seconds of an open loop."""
    count = int(10 * rate_req_s)
    return LoadJob(
        endpoint=Endpoint(base_url="http://127.0.0.1:1", api="chat", model="m"),
        limits=TimeLimits(),
        plan=LoadPlan(starts_s=tuple(i / rate_req_s for i in range(count)), concurrency=limit),
        chains=tuple((Request(index=i, max_tokens=tokens),) for i in range(count)),
    )


def test_an_open_loop_has_processes_for_its_work_though_nobody_knows_its_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100 req/s of 950 tokens, and 50 for each request, are 2000 streams of 50 tokens/s."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(16))
    assert equal_streams(rated(100, 950)) == pytest.approx(2000, rel=0.01)
    assert worker_count(None, equal_streams(rated(100, 950))) == 4
    assert worker_count(None, equal_streams(rated(2, 128))) == 1
    assert worker_count(None, equal_streams(rated(100, 950, limit=64))) == 1


def test_a_load_in_two_processes_gives_every_result(desk: SimpleNamespace) -> None:
    from benchx.serving.groundtruth.process import GroundTruth
    from benchx.serving.groundtruth.stream import Pace

    with GroundTruth(Pace(ttft_ms=20.0, token_ms=2.0)) as truth:
        job = LoadJob(
            endpoint=Endpoint(base_url=truth.base_url, api="chat", model="m"),
            limits=TimeLimits(),
            plan=LoadPlan(concurrency=4),
            chains=chains_of(requests(20)),
        )
        seen: list[int] = []
        outcome = run_load(job, workers=2, on_result=lambda result: seen.append(result.index))
    assert [result.index for result in outcome.results] == list(range(20))
    assert {result.outcome for result in outcome.results} == {"ok"}
    assert len(outcome.reports) == 2
    assert sorted(seen) == list(range(20))
    assert most_in_flight(outcome.results) == 4


def test_ctrl_c_is_left_to_the_process_that_started_the_others() -> None:
    """A terminal sends it to all of them; what they printed of it would bury what is said of it."""
    from benchx.serving.groundtruth.process import GroundTruth
    from benchx.serving.groundtruth.stream import Pace

    told: list[str] = []

    def interrupt(result: RequestResult) -> None:
        if result.index == 0:
            for child in psutil.Process().children():
                told.extend(word for word in child.cmdline() if word.startswith("benchx.serving"))
                child.send_signal(signal.SIGINT)

    with GroundTruth(Pace(ttft_ms=300.0, token_ms=2.0)) as truth:
        job = LoadJob(
            endpoint=Endpoint(base_url=truth.base_url, api="chat", model="m"),
            limits=TimeLimits(),
            plan=LoadPlan(concurrency=1),
            chains=chains_of(requests(8)),
        )
        outcome = run_load(job, isolated=True, on_result=interrupt)
        assert truth.stop()  # it still says what happened
    assert {result.outcome for result in outcome.results} == {"ok"}
    assert sorted(told) == ["benchx.serving.groundtruth.server", "benchx.serving.worker"]


def test_results_that_come_while_others_are_being_written_are_sent_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[object] = []
    writing = threading.Event()

    def slowly(_: object, results: list[object]) -> None:
        writing.set()
        time.sleep(0.2)
        written.extend(results)

    async def main() -> None:
        outbox, over = worker._Outbox(io.BytesIO()), asyncio.Event()
        sender = asyncio.create_task(outbox.send_until(over))
        outbox.add("first")  # type: ignore[arg-type]
        await asyncio.to_thread(writing.wait)
        outbox.add("second")  # type: ignore[arg-type]
        over.set()
        await sender

    monkeypatch.setattr(worker, "write_frame", slowly)
    asyncio.run(main())
    assert written == ["first", "second"]


def test_a_result_that_got_lost_fails_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    report = ClientReport(cpu_s=0, wall_s=1, loop_lag_ms=(), peak_rss_bytes=0, not_sent=1)
    monkeypatch.setattr("benchx.serving.load_session.run_in_workers", lambda *_: (report,))
    endpoint = Endpoint(base_url="http://127.0.0.1:1", api="chat", model="m")
    job = LoadJob(
        endpoint=endpoint,
        limits=TimeLimits(),
        plan=LoadPlan(concurrency=1),
        chains=chains_of(requests(3)),
    )
    with pytest.raises(RunFailed, match="2 requests were sent and 0 results came of them"):
        run_load(job, isolated=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_is_not_there_fails_the_load_in_one_sentence(workers: int) -> None:
    job = LoadJob(
        endpoint=Endpoint(base_url="http://127.0.0.1:9/v1", api="chat", model="m"),
        limits=TimeLimits(),
        plan=LoadPlan(concurrency=2),
        chains=chains_of(requests(4)),
    )
    with pytest.raises(RunFailed, match=r"can't connect to 127\.0\.0\.1:9"):
        run_load(job, workers=workers)
