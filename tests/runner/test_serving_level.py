"""Serving points measured in this process against servers that run already."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchx.core.errors import UsageError
from benchx.core.outcome import Outcome
from benchx.core.record import LaunchRecord
from benchx.measure.device import probe_device
from benchx.runner.events import Event, Recorded
from benchx.runner.serving_level import ServingLevel
from benchx.runner.serving_result import energy_figures
from benchx.runner.session import Session
from benchx.runner.spec import LaunchSpec
from benchx.scenario import Vocabulary, expand, load
from benchx.serving.groundtruth.process import GroundTruth
from benchx.serving.groundtruth.stream import Pace
from benchx.store.requests import read_requests

TEXT = """\
schema: 1
kind: serving
engine: {{name: endpoint, model: m, base_url: "{url}", token_ids: true, ready_timeout: 2s{more}}}
workload: {workload}
axes: {{{axes}}}
slo: {{ttft: {ttft}}}
load: {{{load}}}
"""
RANDOM = "{dataset: random, input_len: 8, output_len: 4, requests: 6}"
UNCOUNTED = "{dataset: random, input_len: 8, output_len: 4}"
SEARCH = "search: {axis: concurrency, low: 1, high: 4}\n"


class Collector:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, event: Event) -> None:
        self.events.append(event)

    def records(self) -> list[LaunchRecord]:
        return [event.record for event in self.events if isinstance(event, Recorded)]


Measure = Callable[..., list[LaunchRecord]]


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """Measures a scenario against a URL, in one group per start of the engine."""

    def run(
        url: str,
        *,
        axes: str = "concurrency: [2]",
        more: str = "",
        how: str = "",
        end: str = "",
        ttft: str = "10s",
        workload: str = RANDOM,
    ) -> Any:  # noqa: ANN401
        path = tmp_path / "s.yaml"
        words = {"axes": axes, "more": more, "load": how, "ttft": ttft, "workload": workload}
        path.write_text(TEXT.format(url=url, **words) + end)
        scenario, level, channel = load(path), ServingLevel(), Collector()
        groups = level.groups(expand(scenario, Vocabulary(ops={})))
        spec = LaunchSpec(
            run_id="r",
            launch=0,
            worker=0,
            groups=groups,
            settings={0: level.settings(scenario.parts[0])},
            folder=str(tmp_path),
        )
        (tmp_path / "logs").mkdir(exist_ok=True)
        session = Session(spec=spec, device=probe_device(), ceilings={}, channel=channel)
        for group in groups:
            level.measure(group, session)
        return channel.records()

    return run


@contextmanager
def answering(
    status: int,
    body: Callable[[int], bytes],
    heads: list[dict[str, str]] | None = None,
    posted: Callable[[bytes], None] = lambda _: None,
) -> Iterator[str]:
    """A server that gives a JSON answer to every request; `body` gets the number of the request.

    It tells metrics, too; `heads` gets the headers of those who ask for them, `posted` the bodies
    of requests.
    """
    count = 0
    asked = [] if heads is None else heads

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal count
            posted(self.rfile.read(int(self.headers["Content-Length"])))
            count += 1
            content = body(count)
            self.send_response(200 if count == 1 else status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            """Metrics in vLLM's words: a prefill of 50 ms for every request answered."""
            asked.append(dict(self.headers))
            name = "vllm:request_prefill_time_seconds"
            content = f"{name}_count {count}\n{name}_sum {0.05 * count}\n".encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def answer(_count: int) -> bytes:
    usage = {"prompt_tokens": 8, "completion_tokens": 4, "cost": 1.0}
    return json.dumps(
        {"choices": [{"text": " a b c d", "finish_reason": "length"}], "usage": usage}
    ).encode()


@contextmanager
def slow_beyond(most: int) -> Iterator[str]:
    """A server that takes 3 s for a request while more than so many have been under way."""
    under_way, lock = 0, threading.Lock()

    def body(count: int) -> bytes:
        nonlocal under_way
        with lock:
            under_way += 1
        time.sleep(0.05)
        late = under_way > most
        time.sleep(3.0 if late else 0.0)
        with lock:
            under_way -= 1
        return answer(count)

    with answering(200, body) as url:
        yield url


def test_every_point_of_a_sweep_has_figures_and_stored_requests(
    measure: Measure, tmp_path: Path
) -> None:
    with GroundTruth(Pace(ttft_ms=20.0, token_ms=2.0)) as truth:
        records = measure(truth.base_url, axes="concurrency: [1, 3]")
    assert [record.outcome for record in records] == [Outcome.OK] * 2, records
    for record in records:
        assert record.values["error_rate"] == 0
        assert record.values["ttft_ms_mean"] >= 20
        assert record.values["output_tokens_mean"] == 4
        assert record.values["goodput_share"] == 1
        assert "client_cpu_share" in record.values
        assert len(record.samples["ttft_ms"]) == 6
    assert [record.values["in_flight_max"] for record in records] == [1, 3]
    stored = read_requests(tmp_path)
    assert len(stored) == 2
    for rows in stored.values():
        assert sorted(row["index"] for row in rows) == list(range(6))
        assert all(len(row["arrivals_ns"]) == 4 for row in rows)


def test_an_open_loop_is_measured_too(measure: Measure) -> None:
    with GroundTruth(Pace(ttft_ms=100.0, token_ms=1.0)) as truth:
        (record,) = measure(truth.base_url, axes="request_rate: [100.0]", how="arrival: constant")
    assert record.outcome is Outcome.OK, record.reason
    assert record.values["in_flight_max"] >= 3


def test_a_trace_is_sent_at_its_own_times_and_lengths(measure: Measure, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 200 * n, "input_length": 20 + n, "output_length": 3, "hash_ids": [n]}
        for n in range(4)
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with GroundTruth(Pace(ttft_ms=5.0, token_ms=1.0)) as truth:
        (record,) = measure(
            truth.base_url,
            axes="",
            how="arrival: trace",
            workload=f"{{dataset: mooncake, path: '{trace}', time_scale: 0.5}}",
        )
    assert record.outcome is Outcome.OK, record.reason
    assert record.values["output_tokens_mean"] == 3
    (rows,) = read_requests(tmp_path).values()
    times = [row["intended_ns"] - rows[0]["intended_ns"] for row in sorted(rows, key=_index)]
    assert times == [100_000_000 * n for n in range(4)]


def _index(row: dict[str, Any]) -> int:
    return int(row["index"])


def test_a_server_that_fails_every_request_crashes_the_point_with_its_words(
    measure: Measure, tmp_path: Path
) -> None:
    with answering(500, lambda n: answer(n) if n == 1 else b'{"error": "no luck"}') as url:
        (record,) = measure(url, how="warmup: false")
    assert record.outcome is Outcome.CRASHED
    assert record.reason == "none of 6 requests was ok: 6 x http_5xx (HTTP 500: no luck)"
    assert record.values == {}
    (rows,) = read_requests(tmp_path).values()
    assert {row["outcome"] for row in rows} == {"http_5xx"}


def test_some_failures_leave_figures_with_an_error_rate(measure: Measure) -> None:
    def sometimes(count: int) -> bytes:
        return answer(count) if count % 2 else b"<html>"

    with answering(200, sometimes) as url:
        (record,) = measure(url, how="max_error_rate: 70%")
    assert record.outcome is Outcome.OK
    assert 0 < record.values["error_rate"] < 1
    assert record.timing is not None
    assert any("protocol" in note for note in record.timing.notes)


def test_more_failures_than_allowed_leave_no_figure_and_are_counted(
    measure: Measure, tmp_path: Path
) -> None:
    """By default one in twenty; a point of which few requests are left says nothing of the rest."""
    with answering(200, lambda n: b"<html>" if n == 4 else answer(n)) as url:
        (record,) = measure(url, how="warmup: false")
    assert record.outcome is Outcome.CRASHED
    assert "1 of 6 requests failed: 1 x protocol" in (record.reason or "")
    assert "load.max_error_rate is 0.05" in (record.reason or "")
    assert record.values == {}
    (rows,) = read_requests(tmp_path).values()
    assert len(rows) == 6


def test_what_was_due_and_never_sent_is_an_error_and_a_miss(measure: Measure) -> None:
    """One at a time of 0.4 s, five due each second: most of them wait until the load is over."""
    with GroundTruth(Pace(ttft_ms=400.0, token_ms=1.0)) as truth:
        (record,) = measure(
            truth.base_url,
            axes="request_rate: [5.0], concurrency: [1]",
            how="arrival: constant, duration: 2s, warmup: false, max_error_rate: 100%",
            workload=UNCOUNTED,
        )
    assert record.outcome is Outcome.OK, record.reason
    overdue = record.values["overdue_requests"]
    assert overdue >= 3
    assert record.values["error_rate"] == pytest.approx(overdue / 10)
    assert record.values["goodput_share"] == pytest.approx(1 - overdue / 10)
    assert record.values["offered_rate_req_s"] == pytest.approx(5.0)


def test_a_burst_that_its_limits_outlast_is_no_rate_that_a_server_sustains(
    measure: Measure,
) -> None:
    """Every request meets 10 s at any rate; one of 0.1 s at a time sustains ten a second."""
    lock = threading.Lock()

    def one_at_a_time(count: int) -> bytes:
        with lock:
            time.sleep(0.1)
        return answer(count)

    with answering(200, one_at_a_time) as url:
        (record,) = measure(
            url,
            axes="",
            end="search: {axis: request_rate, low: 4, high: 64, precision: 50%}\n",
            how="arrival: constant, duration: 3s, warmup: false",
            workload=UNCOUNTED,
        )
    assert record.outcome is Outcome.OK, record.reason
    assert 4 <= record.values["slo_rate_req_s"] <= 11
    assert record.values["achieved_rate_share"] >= 0.95
    assert record.timing is not None
    assert any("of the offered rate is achieved" in note for note in record.timing.notes)


def test_data_that_end_before_the_duration_are_told(measure: Measure) -> None:
    with GroundTruth(Pace(ttft_ms=5.0, token_ms=1.0)) as truth:
        (record,) = measure(truth.base_url, how="duration: 60s")
    assert record.timing is not None
    assert any("of load.duration 60 s" in note for note in record.timing.notes)


def test_data_of_a_load_that_was_stopped_did_not_end(measure: Measure) -> None:
    with answering(200, answer) as url:
        (record,) = measure(url, how="duration: 60s, spend_limit_usd: 4.0, warmup: false")
    assert record.timing is not None
    assert "spending limit" in record.timing.stop
    assert not any("load.duration" in note for note in record.timing.notes)


def test_a_server_that_is_not_there_fails_all_points_and_hangs_none(measure: Measure) -> None:
    records = measure("http://127.0.0.1:9/v1", axes="concurrency: [1, 2]")
    assert len(records) == 2
    assert all(record.outcome.is_failure for record in records)


def test_a_spending_limit_stops_the_load_and_skips_what_follows(measure: Measure) -> None:
    with answering(200, answer) as url:
        records = measure(
            url, axes="concurrency: [1, 2]", how="spend_limit_usd: 3.0, warmup: false"
        )
    assert records[0].outcome is Outcome.OK
    assert records[0].timing is not None
    assert "spending limit" in records[0].timing.stop
    assert 2 <= records[0].values["spent_usd"] <= 4  # besides the engine's trial, 1 USD
    assert records[1].outcome is Outcome.SKIPPED


def test_trial_and_warm_up_count_toward_the_spending_limit_and_so_does_what_was_spent_before(
    measure: Measure, tmp_path: Path
) -> None:
    """1 USD for the trial and 2 for the warm-up: nothing is left for the load."""
    with answering(200, answer) as url:
        (record,) = measure(url, how="spend_limit_usd: 3.0")
        assert record.outcome is Outcome.SKIPPED
        assert record.reason == "the spending limit was reached before the load"
        (again,) = measure(url, how="spend_limit_usd: 3.5")
    assert again.outcome is Outcome.SKIPPED
    charged = [json.loads(line) for line in (tmp_path / "spending.jsonl").read_text().splitlines()]
    assert sum(entry["usd"] for entry in charged) == 4.0
    assert {entry["what"].split()[0] for entry in charged} == {"trial", "warm-up"}


def test_a_search_shows_what_all_of_its_loads_were_charged(measure: Measure) -> None:
    end = "search: {axis: concurrency, low: 1, high: 2}\n"
    with answering(200, answer) as url:
        (record,) = measure(url, axes="", end=end, how="warmup: false")
    assert record.values["spent_usd"] == 12.0


def test_a_warm_up_that_fails_in_part_is_told_and_one_that_fails_is_the_points_failure(
    measure: Measure, tmp_path: Path
) -> None:
    with answering(200, lambda n: b"<html>" if n == 2 else answer(n)) as url:
        (record,) = measure(url)
    assert record.outcome is Outcome.OK, record.reason
    assert record.timing is not None
    assert any(note.startswith("warm-up: 1 of 2 requests failed") for note in record.timing.notes)
    with answering(200, lambda n: answer(n) if n == 1 else b"<html>") as url:
        (record,) = measure(url, axes="concurrency: [3]")
    assert record.outcome is Outcome.CRASHED
    assert (record.reason or "").startswith("warm-up: none of 3 requests was ok: 3 x protocol")
    assert len(read_requests(tmp_path)) == 1


def test_every_attempt_at_a_point_sends_prompts_of_its_own(
    measure: Measure, tmp_path: Path
) -> None:
    """As a resumed run does, which asks a server that knows the prompts of the first attempt."""
    prompts: list[str] = []

    def note(one: bytes) -> None:
        prompts.append(json.dumps(json.loads(one)["prompt"]))

    salts = []
    with answering(200, answer, posted=note) as url:
        for _ in range(2):
            (record,) = measure(url, how="warmup: false")
            salts.append(record.provenance["salt"])
            shutil.rmtree(tmp_path / "requests")
    sent = [prompt for prompt in prompts if len(json.loads(prompt)) == 8]
    assert len(sent) == len(set(sent)) == 12
    assert salts[0] != salts[1]


def test_a_concurrency_that_the_data_can_not_reach_is_told(
    measure: Measure, tmp_path: Path
) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": f"p{n}", "output_tokens": 4}) + "\n" for n in range(3))
    )
    with answering(200, answer) as url:
        (record,) = measure(
            url, axes="concurrency: [8]", workload=f"{{dataset: custom, path: '{path}'}}"
        )
    assert record.timing is not None
    assert any(note.startswith("in flight at most 3 of 8") for note in record.timing.notes)


def test_a_wrong_tokenizer_is_told_before_anything_runs(measure: Measure, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        measure("http://127.0.0.1:9/v1", more=f", api: chat, tokenizer: '{tmp_path}'")


def test_a_missing_key_fails_by_name_and_a_key_is_in_no_file(
    measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with answering(200, answer) as url:
        (record,) = measure(url, more=", api_key_env: SOME_KEY")
        assert record.outcome.is_failure
        assert "SOME_KEY" in (record.reason or "")
        monkeypatch.setenv("SOME_KEY", "sk-secret-123")
        (record,) = measure(url, more=", api_key_env: SOME_KEY")
    assert record.outcome is Outcome.OK, record.reason
    assert "sk-secret-123" not in json.dumps(record.to_json())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"sk-secret-123" in path.read_bytes() for path in files)


def test_a_running_servers_metrics_are_read_where_the_scenario_says(measure: Measure) -> None:
    with answering(200, answer) as url:
        metrics = url.removesuffix("/v1") + "/metrics"
        (record,) = measure(url, more=f", metrics_url: '{metrics}', architecture: kimi-k3")
    assert record.outcome is Outcome.OK, record.reason
    assert record.provenance["kv_prefill_source"] == "server"
    assert record.telemetry["server"]["prefill_mean_s"] == pytest.approx(0.05)
    assert record.values["server_prefill_ms_mean"] == pytest.approx(50)
    assert "server_queue_ms_mean" not in record.values  # not told, so not 0
    series = record.telemetry["server_series"]
    assert series["at_ns"][0] < 1e9  # counted from the start of the point
    assert series["at_ns"] == sorted(series["at_ns"])
    expected = (record.values["kv_cache_bytes"] + record.values["kv_state_bytes"]) / 0.05 / 1e9
    assert record.values["kv_throughput_gb_s"] == pytest.approx(expected)


@pytest.mark.parametrize("path", [":9/metrics", "/nowhere"])
def test_metrics_that_are_not_there_are_said_before_anything_is_measured(
    measure: Measure, path: str
) -> None:
    with answering(200, answer) as url:
        root = url.removesuffix("/v1")
        there = f"http://127.0.0.1{path}" if path.startswith(":") else root + path
        (record,) = measure(url, more=f", metrics_url: '{there}'")
    assert record.outcome is Outcome.CRASHED
    assert "engine.metrics_url gives no metrics" in (record.reason or "")
    assert there in (record.reason or "")


def test_the_key_of_a_service_is_not_sent_to_another_address(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret-123")
    heads: list[dict[str, str]] = []
    with answering(200, answer) as url, answering(200, answer, heads) as other:
        there = other.removesuffix("/v1") + "/metrics"
        (record,) = measure(url, more=f", api_key_env: SOME_KEY, metrics_url: '{there}'")
    assert record.outcome is Outcome.OK, record.reason
    assert heads
    assert not any("sk-secret-123" in str(head) for head in heads)


def test_an_unknown_model_has_no_kv_throughput_and_the_notes_say_why(measure: Measure) -> None:
    with GroundTruth(Pace(ttft_ms=5.0, token_ms=1.0)) as truth:
        (record,) = measure(truth.base_url)
    assert "kv_throughput_gb_s" not in record.values
    assert record.timing is not None
    assert any("engine.architecture" in note for note in record.timing.notes)


@pytest.mark.parametrize(
    ("power_w", "is_only_gpu", "expected"),
    [(700.0, True, 0.7), (None, True, None), (700.0, False, None)],
)
def test_energy_is_that_of_the_only_gpu_or_unknown(
    power_w: float | None, is_only_gpu: bool, expected: float | None
) -> None:
    values = {"output_throughput_tok_s": 1000.0}
    found = energy_figures(values, power_w, is_only_gpu=is_only_gpu)
    assert found.get("output_energy_j_tok") == expected


def test_data_that_are_not_there_are_said_before_any_server_is_asked(measure: Measure) -> None:
    workload = "{dataset: custom, path: no-such.jsonl}"
    records = measure("http://127.0.0.1:9/v1", axes="concurrency: [1, 2]", workload=workload)
    assert [record.outcome for record in records] == [Outcome.CRASHED] * 2
    assert all("workload.path: there is no file no-such.jsonl" in r.reason for r in records)


def test_one_point_that_cannot_be_made_does_not_stop_the_next(measure: Measure) -> None:
    with GroundTruth(Pace(ttft_ms=5.0, token_ms=1.0)) as truth:
        records = measure(truth.base_url, axes="arrival: [trace, constant], request_rate: [200.0]")
    assert [record.outcome for record in records] == [Outcome.CRASHED, Outcome.OK], records


def test_the_highest_concurrency_within_the_objective_is_found(
    measure: Measure, tmp_path: Path
) -> None:
    with GroundTruth(Pace(ttft_ms=5.0, token_ms=1.0)) as truth:
        (record,) = measure(truth.base_url, axes="", end=SEARCH)
    assert record.outcome is Outcome.OK, record.reason
    assert record.values["slo_in_flight_max"] == 4
    assert record.provenance["searched"] == {"axis": "concurrency", "found": 4}
    assert record.values["in_flight_max"] == 4
    assert record.timing is not None
    assert "searched concurrency over 1, 2, 4" in record.timing.notes
    assert len(read_requests(tmp_path)) == 3


def test_an_objective_that_no_load_meets_gives_figures_and_no_answer(measure: Measure) -> None:
    with GroundTruth(Pace(ttft_ms=50.0, token_ms=1.0)) as truth:
        (record,) = measure(truth.base_url, axes="", end=SEARCH, ttft="10ms")
    assert record.outcome is Outcome.OK, record.reason
    assert "slo_in_flight_max" not in record.values
    assert record.provenance["searched"] == {"axis": "concurrency", "found": None}
    assert record.values["goodput_share"] == 0
    assert record.timing is not None
    assert "the lowest load does not meet the SLO" in record.timing.notes


def test_a_search_stops_at_the_spending_limit_and_a_load_cut_short_is_no_answer(
    measure: Measure, tmp_path: Path
) -> None:
    end = "search: {axis: concurrency, low: 1, high: 64}\n"
    with answering(200, answer) as url:  # 6 requests of 1 USD for each load
        (record,) = measure(url, axes="", end=end, how="spend_limit_usd: 8.0, warmup: false")
    assert record.outcome is Outcome.OK, record.reason
    assert record.values["slo_in_flight_max"] == 1
    assert len(read_requests(tmp_path)) == 2
    assert record.timing is not None
    assert "searched concurrency over 1, 2" in record.timing.notes
    assert any("the spending limit was reached" in note for note in record.timing.notes)


def test_a_search_says_what_its_answer_lies_below(measure: Measure) -> None:
    with slow_beyond(2) as url:
        (record,) = measure(url, axes="", end=SEARCH, ttft="1s")
    assert record.outcome is Outcome.OK, record.reason
    assert record.values["slo_in_flight_max"] == 2
    assert record.timing is not None
    told = "the lowest load that was tried and does not meet the SLO: 3"
    assert told in record.timing.notes
