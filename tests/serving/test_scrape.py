"""Server metrics: exact names, counters that restart, and what is not told stays unknown."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.prometheus import parse, total
from benchx.serving.scrape import Reading, Scraper, Series, read_page
from benchx.serving.server_metrics import PREFIXES, SGLANG, TRTLLM, VLLM, sources_of, wanted_names
from benchx.serving.server_summary import (
    AcceptanceMode,
    ServerSummary,
    acceptance_mode,
    acceptance_seen,
    cache_state,
    computed_share,
    summarise,
)

sys.path.append(str(Path(__file__).parent / "fakes"))
from served import Quiet, served  # type: ignore[import-not-found]

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.5
vllm:prompt_tokens_total{engine="0"} 1e+03
vllm:prompt_tokens_created{engine="0"} 1.7643456e+09
vllm:prompt_tokens_by_source_total{source="local_compute"} 600
vllm:prompt_tokens_by_source_total{source="local_cache_hit"} 300
vllm:prompt_tokens_by_source_total{source="external_kv_transfer"} 100
vllm:kv_offload_total_bytes_total{transfer_type="GPU_to_CPU"} 4096
vllm:kv_offload_total_bytes_created{transfer_type="GPU_to_CPU"} 1.7643456e+09
vllm:kv_offload_total_bytes_total{transfer_type="CPU_to_GPU"} 1024
vllm:request_prefill_time_seconds_bucket{le="0.3"} 1
vllm:request_prefill_time_seconds_bucket{le="+Inf"} 4
vllm:request_prefill_time_seconds_sum 2.0
vllm:request_prefill_time_seconds_count 4
vllm:spec_decode_num_drafts_total 10
vllm:spec_decode_num_accepted_tokens_total 25
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 8
"""


def reading(at_ns: int, **values: float) -> Reading:
    return Reading(at_ns=at_ns, values=values)


def test_series_of_several_ranks_become_one_value() -> None:
    values = read_page(PAGE, VLLM)
    assert values["requests_running"] == 7
    assert values["kv_usage_share"] == 0.5


def test_a_name_is_never_matched_by_a_part_of_it() -> None:
    values = read_page(PAGE, VLLM)
    assert values["input_tokens"] == 1000
    assert values["offload_out_bytes"] == 4096
    assert values["offload_in_bytes"] == 1024
    assert max(values.values()) < 1e6  # no `_created` time got in


def test_labels_choose_the_source_of_prompt_tokens() -> None:
    values = read_page(PAGE, VLLM)
    assert values["input_computed"] == 600
    assert values["input_from_cache"] == 300
    assert values["input_from_outside"] == 100


def test_what_a_page_does_not_have_is_absent() -> None:
    assert "preemptions" not in read_page(PAGE, VLLM)
    assert read_page(PAGE, SGLANG) == {}
    assert read_page("", VLLM) == {}


def test_an_older_name_counts_only_when_the_newer_one_is_absent() -> None:
    old = "vllm:gpu_cache_usage_perc 0.9\n"
    assert read_page(old, VLLM)["kv_usage_share"] == 0.9
    assert read_page(old + PAGE, VLLM)["kv_usage_share"] == 0.5


@pytest.mark.parametrize(("prefix", "sources"), PREFIXES.items())
def test_every_map_reads_its_own_server_only(prefix: str, sources: object) -> None:
    assert isinstance(sources, dict)
    assert all(name.startswith(prefix) for name in wanted_names(sources))
    assert sources_of({f"{prefix}anything"}) is sources
    assert sources_of({"process_cpu_seconds_total"}) == {}


def test_labels_are_unescaped_and_time_stamps_dropped() -> None:
    line = r'm{a="x\"y\\z\n",b="{,}"} 5 1395066363000'
    (sample,) = parse(line)
    assert sample.labels == {"a": 'x"y\\z\n', "b": "{,}"}
    assert sample.value == 5


@pytest.mark.parametrize("labels", ["", '{le="1"}'])
def test_an_exemplar_is_no_part_of_a_sample(labels: str) -> None:
    (sample,) = parse(f'm{labels} 5 # {{trace_id="a # b"}} 0.67 1.5e9')
    assert sample.value == 5


def test_requests_that_sglang_takes_back_are_preemptions() -> None:
    values = read_page('sglang:num_retracted_requests_total{tp_rank="0"} 3.0\n', SGLANG)
    assert values == {"preemptions": 3.0}


@pytest.mark.parametrize(
    "line", ["m{a=b} 1", 'm{a="b" 1', "m one", "m", "{} 1", "m 1 2 3", "# m 1"]
)
def test_a_line_that_is_no_sample_is_left_out(line: str) -> None:
    assert not list(parse(line))


def test_special_values_are_read_and_nan_is_nothing() -> None:
    (infinite,) = parse("m +Inf")
    assert infinite.value == math.inf
    assert total(list(parse("m NaN")), "sum") is None


@given(st.text())
def test_no_page_breaks_the_parser(text: str) -> None:
    list(parse(text))


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20))
def test_a_counter_that_never_falls_grows_by_its_last_minus_its_first(steps: list[int]) -> None:
    readings, value = [], 0
    for at, step in enumerate(steps):
        value += step
        readings.append(reading(at, c=float(value)))
    assert Series(readings=tuple(readings)).increase("c") == value - steps[0]


def test_a_counter_that_falls_has_restarted_from_zero() -> None:
    series = Series(readings=tuple(reading(i, c=v) for i, v in enumerate([5.0, 9.0, 2.0, 3.0])))
    assert series.increase("c") == 4 + 2 + 1


def test_a_labelled_counter_was_zero_before_it_appeared() -> None:
    series = Series(readings=(reading(0, other=1.0), reading(1, other=1.0, c=4.0)))
    assert series.increase("c") == 4
    assert series.increase("other") == 0
    assert series.increase("never") is None


def test_columns_count_time_from_an_origin_and_keep_gaps() -> None:
    series = Series(readings=(reading(10, a=1.0), reading(20, a=2.0, b=3.0)))
    assert series.columns(5) == {"at_ns": [5, 15], "a": [1.0, 2.0], "b": [None, 3.0]}


def test_a_summary_relates_hits_to_all_prompt_tokens() -> None:
    before = dict.fromkeys(read_page(PAGE, VLLM), 0.0)
    series = Series(readings=(reading(0, **before), reading(1, **read_page(PAGE, VLLM))))
    told = summarise(series)
    assert told.prefix_hit_share == pytest.approx(0.3)
    assert told.external_hit_share == pytest.approx(0.1)
    assert told.computed_share == pytest.approx(0.6)
    assert told.prefill_mean_s == pytest.approx(0.5)
    assert told.acceptance_length == pytest.approx(3.5)
    assert told.acceptance_at == pytest.approx((0.9, 0.8))
    assert told.preemptions is None
    assert "preemptions" not in told.to_json()


def test_no_hit_at_all_is_zero_and_not_unknown() -> None:
    series = Series(
        readings=(
            reading(0, prefix_queries=0.0, prefix_hits=0.0),
            reading(1, prefix_queries=100.0, prefix_hits=0.0),
        )
    )
    assert summarise(series).prefix_hit_share == 0.0
    assert summarise(Series()).prefix_hit_share is None


def test_a_summary_has_figures_for_what_was_told_and_no_others() -> None:
    found = ServerSummary(queue_mean_s=0.5, preemptions=0.0, kv_usage_share_max=0.8).values()
    assert found == {
        "server_queue_ms_mean": 500.0,
        "server_preemptions": 0.0,
        "server_kv_usage_share": 0.8,
    }
    assert ServerSummary().values() == {}


def test_the_computed_share_follows_from_hits_where_sources_are_not_told() -> None:
    names = ("prefix_queries", "prefix_hits", "external_hits")
    series = Series(
        readings=(
            reading(0, **dict.fromkeys(names, 0.0)),
            reading(1, prefix_queries=100.0, prefix_hits=50.0, external_hits=20.0),
        )
    )
    assert computed_share(series) == pytest.approx(0.3)
    assert computed_share(Series()) is None


def test_llama_server_is_read_by_its_own_names() -> None:
    page = (
        "llamacpp:prompt_tokens_total 100\nllamacpp:tokens_predicted_total 40\n"
        "llamacpp:prompt_tokens_seconds 12.5\nllamacpp:requests_processing 2\n"
        "llamacpp:requests_deferred 3\n"
    )
    sources = sources_of({"llamacpp:prompt_tokens_total"})
    assert read_page(page, sources) == {
        "requests_running": 2,
        "requests_waiting": 3,
        "input_tokens": 100,
        "output_tokens": 40,
    }
    older = read_page(page + "llamacpp:kv_cache_usage_ratio 0.5\n", sources)
    assert older["kv_usage_share"] == 0.5


def test_trtllm_counts_blocks() -> None:
    page = "trtllm_kv_cache_reused_blocks_total {}\ntrtllm_kv_cache_missed_blocks_total {}\n"
    readings = tuple(
        reading(at, **read_page(page.format(hit, miss), TRTLLM))
        for at, (hit, miss) in enumerate([(10, 10), (40, 20)])
    )
    assert summarise(Series(readings=readings)).prefix_hit_share == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("share", "state"), [(None, None), (0.0, "cold"), (0.01, "cold"), (0.5, "mixed"), (1.0, "warm")]
)
def test_a_point_is_cold_warm_or_mixed_by_its_cached_share(
    share: float | None, state: str | None
) -> None:
    assert cache_state(share) == state


def test_acceptance_by_decree_is_told_from_real_acceptance() -> None:
    def mode(**fields: Any) -> str:  # noqa: ANN401 - settings
        settings = EngineSettings(name="vllm", model="m", **fields)
        return acceptance_mode(settings, ENGINES.get("vllm").capabilities(settings))

    drafts = {"method": "dspark", "num_speculative_tokens": 7}
    decreed = drafts | {"synthetic_acceptance_length": 3.0}
    assert mode(args={"speculative-config": drafts}) == "real"
    assert mode(args={"speculative-config": decreed}) == "synthetic"
    assert mode(env={"SGLANG_SIMULATE_ACC_LEN": "3"}) == "synthetic"
    assert mode(args={"model-draft": "small.gguf"}) == "real"
    assert mode() == "none"


@pytest.mark.parametrize(
    ("engine", "args", "mode"),
    [
        ("endpoint", {}, "unknown"),
        ("trtllm", {"extra_llm_api_options": "options.yaml"}, "unknown"),
        ("vllm", {"config": "options.yaml"}, "unknown"),
        ("sglang", {}, "none"),
        ("sglang", {"speculative-algorithm": "EAGLE"}, "real"),
    ],
)
def test_where_flags_can_t_show_drafts_it_is_unknown_whether_there_are_any(
    engine: str, args: dict[str, Any], mode: str
) -> None:
    settings = EngineSettings(name=engine, model="m", base_url="http://h/v1", args=args)
    assert acceptance_mode(settings, ENGINES.get(engine).capabilities(settings)) == mode


@pytest.mark.parametrize(
    ("mode", "seen"),
    [("unknown", "real"), ("none", "real"), ("synthetic", "synthetic"), ("real", "real")],
)
def test_drafts_that_were_seen_are_real_unless_they_are_decreed(
    mode: AcceptanceMode, seen: str
) -> None:
    grew = Series(
        readings=(
            reading(0, drafts=0.0, accepted_tokens=0.0),
            reading(1, drafts=10.0, accepted_tokens=20.0),
        )
    )
    assert acceptance_seen(mode, grew) == seen
    assert acceptance_seen(mode, Series()) == mode


def lengths(*pairs: tuple[float, float | None]) -> Series:
    """Readings of the gauge of acceptance, and requests that ran meanwhile."""
    return Series(
        readings=tuple(
            reading(at, acceptance_length=length)
            if running is None
            else reading(at, acceptance_length=length, requests_running=running)
            for at, (length, running) in enumerate(pairs)
        )
    )


def test_a_server_without_speculation_has_no_acceptance_length() -> None:
    page = 'sglang:spec_accept_length{tp_rank="0"} 0.0\nsglang:num_running_reqs{tp_rank="0"} 4\n'
    series = Series(readings=(Reading(at_ns=0, values=read_page(page, SGLANG)),) * 3)
    assert summarise(series).acceptance_length is None
    assert acceptance_seen("unknown", series) == "unknown"


def test_an_acceptance_length_is_the_mean_while_requests_ran() -> None:
    series = lengths((0.0, 0.0), (2.0, 0.0), (3.0, 4.0), (4.0, 4.0), (4.0, 0.0))
    assert summarise(series).acceptance_length == 3.5
    assert acceptance_seen("unknown", series) == "real"
    assert summarise(lengths((0.0, None), (3.0, None), (3.0, None))).acceptance_length == 3.0
    assert summarise(lengths((3.0, 0.0), (3.0, 0.0))).acceptance_length is None


def test_counters_of_drafts_come_before_the_gauge() -> None:
    both = (
        reading(0, drafts=0.0, accepted_tokens=0.0, acceptance_length=9.0),
        reading(1, drafts=10.0, accepted_tokens=20.0, acceptance_length=9.0),
    )
    assert summarise(Series(readings=both)).acceptance_length == 3.0


@pytest.fixture
def metrics_server() -> Iterator[tuple[str, list[str]]]:
    pages = [PAGE]

    class Handler(Quiet):
        def do_GET(self) -> None:
            body = pages[-1].encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with served(Handler) as root:
        yield f"{root}/metrics", pages


def test_a_server_is_recognised_and_polled_until_stopped(
    metrics_server: tuple[str, list[str]],
) -> None:
    url, pages = metrics_server
    scraper = Scraper(url, interval_s=0.02)
    scraper.start()
    pages.append(PAGE.replace("1e+03", "1500"))
    series = scraper.stop()
    assert scraper.sources is VLLM
    assert len(series.readings) >= 2
    assert series.increase("input_tokens") == 500
    assert series.problem is None
    times = [one.at_ns for one in series.readings]
    assert times == sorted(times)


def test_a_server_without_metrics_gives_no_reading_and_a_reason(
    metrics_server: tuple[str, list[str]],
) -> None:
    url, pages = metrics_server
    pages.append("")
    scraper = Scraper(url, interval_s=60)
    scraper.start()
    series = scraper.stop()
    assert series.readings == ()
    assert "HTTP 404" in str(series.problem)
    assert summarise(series).problem == series.problem
