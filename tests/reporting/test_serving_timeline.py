"""The time line of one load: what is counted when, and from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchx.reporting.chart_canvas import themed
from benchx.reporting.document import build_document
from benchx.reporting.serving_charts import plan_serving
from benchx.reporting.serving_timeline import bin_width_s, timeline
from benchx.runner.serving_result import request_row
from benchx.serving.request import RequestOutcome, RequestResult, Usage
from benchx.store import Run
from benchx.store.requests import RequestLog

S = 1_000_000_000
SERIES: Mapping[str, list[float | None]] = {
    "at_ns": [-S, S, 2 * S, 3 * S, 99 * S],
    "kv_usage_share": [0.9, 0.25, None, 0.5, 0.9],
    "requests_waiting": [0.0, 0.0, 2.0, 0.0, 0.0],
}


OFTEN: Mapping[str, list[float | None]] = {
    "at_ns": [0.7 * S * number for number in range(1, 6)],
    "kv_usage_share": [0.1, 0.2, 0.5, 0.4, 0.3],
}


def result(index: int, start_s: float, end_s: float, **changes: Any) -> RequestResult:  # noqa: ANN401
    """Streams four chunks of one token in the second half of its time."""
    start, end = int(start_s * S), int(end_s * S)
    half = (start + end) // 2
    stamps = tuple(half + (end - half) * step // 4 for step in range(4))
    made = RequestResult(
        index=index,
        outcome=RequestOutcome.OK,
        max_tokens=4,
        intended_ns=start,
        sent_ns=start,
        first_token_ns=stamps[0],
        last_token_ns=stamps[-1],
        end_ns=end,
        arrivals_ns=stamps,
        chunk_tokens=(1, 1, 1, 1),
        client_tokens=4,
        usage=Usage(prompt_tokens=5, completion_tokens=4),
    )
    return replace(made, **changes)


LOAD = [result(0, 0, 2), result(1, 0, 3), result(2, 2.0001, 4), result(3, 3, 4)]


def test_requests_in_flight_rise_with_a_send_and_fall_with_an_end() -> None:
    curve = timeline(LOAD, {}).in_flight
    assert curve.values[-1] == 0
    assert max(curve.values) == 2
    # Between the end at 2 s and the next send 0.1 ms later nothing is to be seen.
    assert set(curve.values) == {2, 0}


def test_the_area_under_the_tokens_is_their_number() -> None:
    line = timeline(LOAD, {})
    assert sum(line.tokens.values) * line.bin_s == pytest.approx(16)
    assert len(line.tokens.values) * line.bin_s == pytest.approx(line.end_s)


def test_a_chunk_of_several_tokens_counts_for_what_the_server_says() -> None:
    more = [replace(one, usage=Usage(prompt_tokens=5, completion_tokens=8)) for one in LOAD]
    line = timeline(more, {})
    assert sum(line.tokens.values) * line.bin_s == pytest.approx(32)


def test_the_steady_stretch_is_from_the_first_end_to_the_last_send() -> None:
    long = [result(index, 2.0 * index, 2.0 * index + 2) for index in range(6)]
    assert timeline(long, {}).steady_s == (2.0, 10.0)


def test_a_stretch_that_is_too_short_is_not_shaded() -> None:
    assert timeline(LOAD, {}).steady_s is None  # a second, where a request takes two


def test_readings_from_before_and_long_after_the_load_are_left_out() -> None:
    line = timeline(LOAD, SERIES)
    assert line.kv_usage.times_s == (1.0, 3.0)
    assert line.kv_usage.values == (0.25, 0.5)
    assert max(line.waiting.values) == 2


def test_a_failed_request_is_marked_at_its_end() -> None:
    failed = replace(LOAD[1], outcome=RequestOutcome.TIMEOUT, reason="late", arrivals_ns=(),
                     chunk_tokens=(), client_tokens=0)  # fmt: skip
    assert timeline([LOAD[0], failed], {}).failed_s == (3.0,)


@pytest.mark.parametrize(("end_s", "tokens"), [(12.7, 600), (0.02, 4), (3600, 1e6), (5, 0)])
def test_bins_are_whole_and_at_most_a_hundred(end_s: float, tokens: float) -> None:
    width = bin_width_s(end_s, tokens)
    assert end_s / width == pytest.approx(round(end_s / width))
    assert 1 <= round(end_s / width) <= 100


@pytest.fixture
def stored(serving_run: Run, tmp_path: Path) -> Callable[..., Run]:
    """A run, by default that of the reports' tests, with the requests of its points in a folder."""

    def build(series: Mapping[str, Any], *, finished: bool = True, of: Run = serving_run) -> Run:
        records = []
        for record in of.records:
            name = f"{record.point_id}-launch-0-worker-0"
            log = RequestLog(tmp_path, name)
            for one in LOAD:
                log.append(request_row(one, 0))
            (log.finish if finished else log.abandon)()
            records.append(
                replace(
                    record,
                    provenance={**record.provenance, "requests": name},
                    telemetry={"server_series": series},
                )
            )
        return replace(of, path=tmp_path, records=tuple(records))

    return build


@pytest.mark.parametrize("finished", [True, False])
def test_the_highest_load_that_worked_is_drawn_from_what_is_stored(
    stored: Callable[..., Run], finished: bool
) -> None:
    (section,) = build_document([stored(OFTEN, finished=finished)]).sections
    plans = [plan for plan in plan_serving(section).plans if "timeline" in plan.name]
    assert [plan.title for plan in plans] == ["Serving, random: time line at concurrency 64"]
    with themed():
        figure = plans[0].build()
    said = " ".join(" ".join(text.get_text() for text in figure.texts).split())
    assert "Model tiny-9b, alpha 4.5.6" in said
    labels = [axes.get_ylabel().replace("\n", " ") for axes in figure.axes]
    assert labels == ["requests in flight", "output, tok/s", "KV cache in use, %"]


def test_of_more_lines_than_are_drawn_the_busiest_are(
    stored: Callable[..., Run], make_serving_run: Callable[..., Run]
) -> None:
    loads = [4, 4, 2, 4, 256, 2]
    points = [{"input_len": 1024 * 2**n, "concurrency": load} for n, load in enumerate(loads)]
    (section,) = build_document([stored(SERIES, of=make_serving_run(points))]).sections
    found = plan_serving(section)
    titles = [plan.title for plan in found.plans if "timeline" in plan.name]
    assert [title.partition(" at ")[2] for title in titles] == [
        "concurrency 4, input_len 1024",
        "concurrency 4, input_len 2048",
        "concurrency 4, input_len 8192",
        "concurrency 256, input_len 16384",
    ]
    assert any("the busiest 4 of 6 lines only" in line for line in found.omissions)


def test_of_equal_loads_those_with_the_longest_prompts_are_drawn(
    stored: Callable[..., Run], make_serving_run: Callable[..., Run]
) -> None:
    points = [{"input_len": 1024 * 2**n, "concurrency": 4} for n in range(5)]
    (section,) = build_document([stored(OFTEN, of=make_serving_run(points))]).sections
    titles = [plan.title for plan in plan_serving(section).plans if "timeline" in plan.name]
    drawn = [title.partition("input_len ")[2] for title in titles]
    assert drawn == ["2048", "4096", "8192", "16384"]


@pytest.mark.parametrize(
    ("loads", "drawn", "said"),
    [
        ([1, 1, 8], ["8"], "no time line of 2 lines with one request at a time."),
        ([1, 8, 8], ["8", "8"], "no time line of 1 line with one request at a time."),
        ([1, 1], ["1", "1"], None),
    ],
)
def test_one_request_at_a_time_is_drawn_only_where_there_is_nothing_else(
    stored: Callable[..., Run],
    make_serving_run: Callable[..., Run],
    loads: list[int],
    drawn: list[str],
    said: str | None,
) -> None:
    points = [{"input_len": 1024 * 2**n, "concurrency": load} for n, load in enumerate(loads)]
    (section,) = build_document([stored(OFTEN, of=make_serving_run(points))]).sections
    found = plan_serving(section)
    titles = [plan.title for plan in found.plans if "timeline" in plan.name]
    if len(set(loads)) > 1:
        assert [title.partition("concurrency ")[2].partition(",")[0] for title in titles] == drawn
    assert len(titles) == len(drawn)
    assert [line for line in found.omissions if "one request at a time" in line] == (
        [] if said is None else [f"Serving, random: {said}"]
    )


def test_a_cache_that_was_read_a_few_times_only_has_no_strip_and_a_note(
    stored: Callable[..., Run],
) -> None:
    (section,) = build_document([stored(SERIES)]).sections
    (plan,) = (plan for plan in plan_serving(section).plans if "timeline" in plan.name)
    with themed():
        figure = plan.build()
    assert len(figure.axes) == 2
    said = " ".join(" ".join(text.get_text() for text in figure.texts).split())
    assert "use of the KV cache was read 2 times only" in said


def test_closed_and_open_loops_in_one_table_are_drawn_each_with_its_own_load(
    stored: Callable[..., Run], make_serving_run: Callable[..., Run]
) -> None:
    points = [
        {"concurrency": 4, "input_len": 1024},
        {"request_rate": 0.5, "input_len": 2048},
        {"request_rate": 2.0, "input_len": 2048},
    ]
    (section,) = build_document([stored(SERIES, of=make_serving_run(points))]).sections
    plans = plan_serving(section).plans
    titles = [plan.title.partition(" at ")[2] for plan in plans if "timeline" in plan.name]
    assert titles == ["concurrency 4, input_len 1024", "rate 2/s, input_len 2048"]
    with themed():
        for plan in plans:
            plan.build().draw_without_rendering()


def test_without_metrics_there_is_no_strip_for_the_cache_and_a_note(
    stored: Callable[..., Run],
) -> None:
    (section,) = build_document([stored({})]).sections
    (plan,) = (plan for plan in plan_serving(section).plans if "timeline" in plan.name)
    with themed():
        figure = plan.build()
    assert len(figure.axes) == 2
    assert any("does not tell" in text.get_text() for text in figure.texts)


def test_a_damaged_file_of_requests_costs_its_time_line_and_not_the_report(
    stored: Callable[..., Run],
) -> None:
    run = stored(SERIES)
    for file in (run.path / "requests").iterdir():
        file.write_bytes(file.read_bytes()[:-20])
    (section,) = build_document([run]).sections
    found = plan_serving(section)
    assert not any("timeline" in plan.name for plan in found.plans)
    assert any("no time line" in line for line in found.omissions)


def test_a_folder_without_requests_has_no_time_line_and_says_so(serving_run: Run) -> None:
    (section,) = build_document([serving_run]).sections
    assert any("no time line" in line for line in plan_serving(section).omissions)
