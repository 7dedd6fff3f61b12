"""What the figures of a load are, on requests whose times are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.metric import parse_column
from benchx.serving.load_schedule import OpenLoop, starts_s
from benchx.serving.metrics import Slo, load_figures, most_in_flight
from benchx.serving.metrics_request import request_figures, token_gaps_ms, tpot_ms
from benchx.serving.request import RequestOutcome, RequestResult, Usage
from benchx.serving.spans import steady_window_ns

MS = 1_000_000


def made(
    arrivals_ms: tuple[float, ...] = (100.0, 110.0, 120.0),
    *,
    index: int = 0,
    sent_ms: float = 0.0,
    intended_ms: float | None = None,
    tokens: tuple[int, ...] | None = None,
    usage: Usage | None = None,
    **more: Any,  # noqa: ANN401 - fields of the result
) -> RequestResult:
    """An ok request that was sent at a time and whose chunks arrived so many ms after that."""
    stamps = tuple(int((sent_ms + at) * MS) for at in arrivals_ms)
    counts = tokens or (1,) * len(stamps)
    last = stamps[-1] if stamps else int(sent_ms * MS)
    values: dict[str, Any] = {
        "index": index,
        "outcome": RequestOutcome.OK,
        "max_tokens": 100,
        "intended_ns": int((sent_ms if intended_ms is None else intended_ms) * MS),
        "sent_ns": int(sent_ms * MS),
        "first_byte_ns": int(sent_ms * MS) + MS,
        "first_token_ns": stamps[0] if stamps else None,
        "first_visible_ns": stamps[0] if stamps else None,
        "last_token_ns": last if stamps else None,
        "end_ns": last + 5 * MS,
        "arrivals_ns": stamps,
        "chunk_tokens": counts,
        "chunk_tokens_known": tokens is not None,
        "client_tokens": sum(counts),
        "usage": usage,
    }
    return RequestResult(**(values | more))


def failed(outcome: str, index: int = 0, end_ms: float = 50.0) -> RequestResult:
    return made(
        (), index=index, outcome=RequestOutcome(outcome), reason="why", end_ns=int(end_ms * MS)
    )


def test_ttft_counts_from_sending_and_the_intended_one_from_intending() -> None:
    figures = request_figures(made(sent_ms=30.0, intended_ms=10.0))
    assert figures["ttft_ms"] == 100
    assert figures["ttft_intended_ms"] == 120
    assert figures["client_lag_ms"] == 20


def test_e2e_ends_with_the_last_payload_and_not_with_done() -> None:
    assert request_figures(made())["e2e_ms"] == 120


def test_tpot_leaves_out_the_first_token() -> None:
    assert tpot_ms(made()) == 10


def test_tpot_leaves_out_all_tokens_of_the_first_chunk_where_they_are_told() -> None:
    result = made((100.0, 300.0), tokens=(20, 20), usage=Usage(completion_tokens=40))
    assert tpot_ms(result) == 10


def test_tokens_are_the_servers_count_and_not_the_chunks() -> None:
    result = made((100.0, 180.0, 260.0), usage=Usage(completion_tokens=17))
    assert tpot_ms(result) == 10


@pytest.mark.parametrize(
    "result",
    [made((100.0,)), made((100.0,), usage=Usage(completion_tokens=8)), made(())],
    ids=["one token", "one chunk", "not streamed"],
)
def test_tpot_of_one_chunk_is_absent_and_not_zero(result: RequestResult) -> None:
    figures = request_figures(result)
    assert figures["tpot_ms"] is None
    assert figures["interactivity_tok_s"] is None
    assert figures["e2e_ms"] is not None


def test_itl_spreads_a_gap_over_the_tokens_of_its_chunk() -> None:
    result = made((100.0, 180.0), tokens=(8, 8), usage=Usage(completion_tokens=16))
    assert gaps(result) == [10.0] * 8


def gaps(result: RequestResult) -> list[float]:
    found = token_gaps_ms(result)
    assert found is not None
    return [float(gap) for gap in found]


def test_time_before_a_chunk_without_a_token_of_its_own_is_not_lost() -> None:
    result = made((100.0, 104.0, 120.0, 121.0, 160.0), tokens=(1, 0, 2, 0, 4))
    assert gaps(result) == [10.0] * 6
    assert gaps(made((100.0, 104.0), tokens=(1, 0))) == []
    assert gaps(made((100.0,))) == []


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 5)), max_size=30))
def test_gaps_of_tokens_add_up_to_the_time_of_those_chunks(
    chunks: list[tuple[int, int]],
) -> None:
    stamps, at = [100.0], 100.0
    for gap, _ in chunks:
        at += gap
        stamps.append(at)
    counts = (1, *(tokens for _, tokens in chunks))
    last = max(place for place, tokens in enumerate(counts) if tokens)
    found = gaps(made(tuple(stamps), tokens=counts))
    assert len(found) == sum(counts) - 1
    assert sum(found) == pytest.approx(stamps[last] - stamps[0])


def test_what_a_failed_request_was_charged_counts_as_spent() -> None:
    cut = failed("truncated", 1)
    charged = [made(usage=Usage(cost=0.5)), replace(cut, usage=Usage(cost=0.25))]
    assert load_figures(charged).values["spent_usd"] == 0.75
    assert "spent_usd" not in load_figures([made(), cut]).values


def test_itl_is_absent_where_chunks_hold_unknown_numbers_of_tokens() -> None:
    values = load_figures([made(notes=("chunk_is_not_token",))]).values
    assert "itl_ms_mean" not in values
    assert values["chunk_gap_ms_mean"] == 10


def test_interactivity_is_the_inverse_of_tpot() -> None:
    figures = request_figures(made())
    assert figures["interactivity_tok_s"] == 100
    assert figures["e2e_interactivity_tok_s"] == pytest.approx(25)


def test_failed_requests_are_counted_and_take_no_part_in_latency() -> None:
    found = load_figures([made(index=0), failed("timeout", 1, 9000.0), failed("http_5xx", 2)])
    assert found.values["error_rate"] == pytest.approx(2 / 3)
    assert found.values["e2e_ms_mean"] == 120
    assert found.outcomes == {"ok": 1, "timeout": 1, "http_5xx": 1}
    assert set(found.notes) == {"timeout (1 of 3)", "http_5xx (1 of 3)"}


def test_if_all_failed_there_is_an_error_rate_and_nothing_else() -> None:
    found = load_figures([failed("empty", index) for index in range(3)])
    assert found.values == {"error_rate": 1.0}
    assert found.samples == {}


def test_no_requests_give_no_figures() -> None:
    assert load_figures([]).values == {}


def test_throughput_is_over_the_wall_time_with_draining() -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=3)
    values = load_figures(
        [made(index=0, usage=usage), made(index=1, sent_ms=875.0, usage=usage)], gpus=2
    ).values
    assert values["duration_s"] == 1
    assert values["request_throughput_req_s"] == 2
    assert values["output_throughput_tok_s"] == 6
    assert values["output_throughput_tok_s_per_gpu"] == 3
    assert values["total_throughput_tok_s"] == 26


def test_without_a_count_of_gpus_nothing_is_per_gpu() -> None:
    assert not any(name.endswith("per_gpu") for name in load_figures([made()]).values)


def test_input_throughput_is_absent_when_one_prompt_is_not_counted() -> None:
    known = made(index=0, usage=Usage(prompt_tokens=10, completion_tokens=3))
    values = load_figures([known, made(index=1)]).values
    assert "input_throughput_tok_s" not in values


def test_goodput_wants_every_limit_kept_and_counts_from_the_intended_start() -> None:
    good = made(index=0)
    late = made(index=1, sent_ms=500.0, intended_ms=0.0)
    slow = made((100.0, 300.0, 500.0), index=2)
    values = load_figures(
        [good, late, slow, failed("timeout", 3)], slo=Slo(ttft_ms=150.0, tpot_ms=50.0)
    ).values
    assert values["goodput_share"] == 0.25
    assert values["goodput_req_s"] == pytest.approx(1 / values["duration_s"])


def test_one_token_keeps_the_limit_of_time_per_token() -> None:
    assert Slo(tpot_ms=1.0).is_met(request_figures(made((100.0,))))


def in_lanes(
    arrivals_ms: tuple[float, ...], *, turns: int, lanes: int, turn_ms: float, apart_ms: float
) -> list[RequestResult]:
    """Equal requests, one behind the other in each lane; lanes start one after the other."""
    return [
        made(arrivals_ms, index=lanes * turn + lane, sent_ms=turn_ms * turn + apart_ms * lane)
        for turn in range(turns)
        for lane in range(lanes)
    ]


def test_the_steady_window_leaves_out_start_and_drain() -> None:
    """Four lanes of 1 s requests, ten tokens each, so 40 tokens per second in the middle."""
    arrivals = tuple(100.0 * step for step in range(1, 11))
    results = in_lanes(arrivals, turns=6, lanes=4, turn_ms=1005.0, apart_ms=250.0)
    values = load_figures(results).values
    assert values["steady_output_throughput_tok_s"] == pytest.approx(40, rel=0.05)
    assert values["output_throughput_tok_s"] < values["steady_output_throughput_tok_s"]


def sessions(
    turns: tuple[int, ...], start_s: tuple[float, ...] | None = None
) -> list[RequestResult]:
    """Lanes of so many 1 s requests each, one behind the other, of a hundred tokens: 100 tok/s."""
    arrivals = tuple(10.0 * step for step in range(1, 101))
    begins = start_s or (0.0,) * len(turns)
    lanes = zip(begins, turns, strict=True)
    pairs = [begin + turn for begin, count in lanes for turn in range(count)]
    return [
        made(arrivals, index=index, sent_ms=1000.0 * at, end_ns=int((1000.0 * at + 1000) * MS))
        for index, at in enumerate(pairs)
    ]


def test_lanes_that_ran_out_of_work_are_no_part_of_the_steady_state() -> None:
    """Eight lanes for 10 s, then one alone for 30 s."""
    results = sessions((40, *(10,) * 7))
    window = steady_window_ns(results)
    assert window is not None
    assert window[0] / 1e9 == 1
    assert window[1] / 1e9 == pytest.approx(10, abs=0.1)
    assert load_figures(results).values["steady_output_throughput_tok_s"] == pytest.approx(
        800, rel=0.01
    )


def test_a_ramp_is_no_part_of_the_steady_state() -> None:
    """Sixteen lanes that start a second apart and end together."""
    results = sessions(tuple(30 - lane for lane in range(16)), tuple(map(float, range(16))))
    values = load_figures(results).values
    assert values["steady_output_throughput_tok_s"] == pytest.approx(1600, rel=0.01)


def test_lanes_that_are_all_busy_are_steady_from_the_first_end_to_the_last_send() -> None:
    window = steady_window_ns(sessions((10,) * 8))
    assert window == (1_000_000_000, 9_000_000_000)


def test_lanes_that_run_dry_one_after_the_other_are_never_steady() -> None:
    assert steady_window_ns(sessions(tuple(range(1, 33)))) is None


def arriving(times_s: Sequence[float], *, takes_s: float = 1.0) -> list[RequestResult]:
    """Requests at these times that all take equally long."""
    end_ms = 1000 * takes_s
    return [
        made(
            (end_ms / 2, end_ms),
            index=index,
            sent_ms=1000 * at,
            end_ns=int(1000 * (at + takes_s) * MS),
        )
        for index, at in enumerate(times_s)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [2.0, 20.0, 200.0])
def test_free_arrivals_are_steady_for_nearly_all_the_time(rate: float, seed: int) -> None:
    times_s = starts_s(OpenLoop(rate_req_s=rate), int(60 * rate), seed)
    window = steady_window_ns(arriving(times_s))
    assert window is not None
    assert (window[1] - window[0]) / 1e9 > 0.7 * times_s[-1]
    figure = load_figures(arriving(times_s)).values["steady_request_throughput_req_s"]
    assert figure == pytest.approx(rate, rel=5 / (60 * rate) ** 0.5)


def test_a_ramp_of_free_arrivals_is_no_part_of_the_steady_state() -> None:
    loop = OpenLoop(rate_req_s=400.0, ramp_s=20.0, arrival="constant")
    window = steady_window_ns(arriving(starts_s(loop, 20_000, 0)))
    assert window is not None
    assert window[0] / 1e9 == pytest.approx(20, abs=2)


def test_a_server_that_falls_behind_free_arrivals_is_never_steady() -> None:
    """Each of 200 requests, ten a second, takes longer than the one before."""
    results = [
        made((100.0, 200.0), index=index, sent_ms=100.0 * index, end_ns=(100 + 200) * index * MS)
        for index in range(1, 200)
    ]
    assert steady_window_ns(results) is None


def waves(turns: int) -> list[RequestResult]:
    """Equal requests that start, and so end, together: 0.9 s to the first token, then 0.1 s."""
    arrivals = tuple(900.0 + 10 * step for step in range(10))
    return in_lanes(arrivals, turns=turns, lanes=8, turn_ms=1000.0, apart_ms=1.0)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_stretch_shorter_than_two_lifetimes_is_no_steady_state(turns: int) -> None:
    values = load_figures(waves(turns)).values
    assert values["output_throughput_tok_s"] > 0
    assert not [name for name in values if name.startswith("steady_")]


def test_waves_of_equal_requests_have_the_steady_rate_of_many() -> None:
    """Eight lanes of a second each, ten tokens: 80 tokens per second and 8 requests."""
    values = load_figures(waves(12)).values
    assert values["steady_output_throughput_tok_s"] == pytest.approx(80, rel=0.05)
    assert values["steady_request_throughput_req_s"] == pytest.approx(8, rel=0.11)


def test_the_cached_share_of_prompts_is_told() -> None:
    usage = Usage(prompt_tokens=100, completion_tokens=3, cached_tokens=25)
    assert load_figures([made(usage=usage)]).values["cached_token_share"] == 0.25


def test_a_prompt_that_the_server_counts_otherwise_is_noted() -> None:
    usage = Usage(prompt_tokens=101, completion_tokens=3)
    notes = load_figures([made(usage=usage, prompt_tokens=100)]).notes
    assert notes == ("prompt_count_differs (1 of 1)",)


def test_most_in_flight_is_exact() -> None:
    results = [made((10.0,), index=i, sent_ms=float(i)) for i in range(5)]
    assert most_in_flight(results) == 5
    later = made((10.0,), index=9, sent_ms=100.0)
    assert most_in_flight([*results, later]) == 5


def test_a_percentile_without_support_is_absent() -> None:
    few = load_figures([made(index=i) for i in range(20)]).values
    many = load_figures([made(index=i) for i in range(500)]).values
    assert "ttft_ms_p99" not in few
    assert many["ttft_ms_p99"] == 100


def test_the_tail_of_a_speed_is_what_nearly_all_requests_reach() -> None:
    """95 of 100 requests wait 10 ms for each token, five wait 100 ms."""
    steps = (10.0,) * 1900 + (100.0,) * 100
    results = [made((100.0, 100.0 + step), index=i) for i, step in enumerate(steps)]
    values = load_figures(results).values
    assert values["tpot_ms_p99"] == 100
    assert values["interactivity_tok_s_p99"] == 10
    assert values["interactivity_tok_s_p90"] == values["interactivity_tok_s_p50"] == 100
    assert values["interactivity_tok_s_p99"] == 1000 / values["tpot_ms_p99"]
    for name in ("e2e_interactivity_tok_s", "interactivity_tok_s"):
        assert values[f"{name}_p99"] <= values[f"{name}_p95"] <= values[f"{name}_p50"]
    assert values["ttft_ms_p99"] >= values["ttft_ms_p50"]


def test_gaps_of_few_requests_don_t_support_a_percentile_however_many_they_are() -> None:
    arrivals = tuple(100.0 + 10 * step for step in range(1000))
    few = load_figures([made(arrivals, index=i) for i in range(20)]).values
    many = load_figures([made(arrivals[:3], index=i) for i in range(500)]).values
    for name in ("itl_ms", "chunk_gap_ms"):
        assert {f"{name}_mean", f"{name}_p50"} <= few.keys()
        assert f"{name}_p99" not in few
        assert many[f"{name}_p99"] == 10
    alone = [made((100.0,), index=i) for i in range(400)]
    mixed = [made(arrivals[:3], index=400 + i) for i in range(100)]
    assert "itl_ms_p99" not in load_figures([*alone, *mixed]).values


@given(st.lists(st.floats(1, 1e4), min_size=2, max_size=50))
def test_every_value_belongs_to_a_registered_metric(gaps: list[float]) -> None:
    at, stamps = 0.0, []
    for gap in gaps:
        at += gap
        stamps.append(at)
    usage = Usage(prompt_tokens=5, completion_tokens=len(gaps), cached_tokens=1, cost=0.1)
    found = load_figures([made(tuple(stamps), usage=usage)], slo=Slo(e2e_ms=1.0), gpus=1)
    for name in (*found.values, *found.samples):
        assert parse_column(name) is not None, name


def test_what_was_due_and_never_sent_is_an_error_and_a_miss_of_the_slo() -> None:
    sent = [made(), made()]
    found = load_figures(sent, slo=Slo(ttft_ms=1e9), overdue=6).values
    assert found["error_rate"] == pytest.approx(6 / 8)
    assert found["goodput_share"] == pytest.approx(2 / 8)
    assert found["overdue_requests"] == 6
    closed = load_figures(sent, slo=Slo(ttft_ms=1e9)).values
    assert closed["error_rate"] == 0
    assert "overdue_requests" not in closed
