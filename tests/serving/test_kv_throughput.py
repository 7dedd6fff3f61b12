"""KV throughput of a server: which bytes, over which time, and when there is no figure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchx.core.errors import BenchxError
from benchx.serving.engines.base import EngineSettings
from benchx.serving.kv_footprint import KvFootprint, kv_footprint
from benchx.serving.kv_throughput import kv_throughput
from benchx.serving.model_shapes import write_shape
from benchx.serving.request import Request, RequestOutcome, RequestResult, Usage
from benchx.serving.scrape import Reading, Series
from benchx.serving.workloads.openings import differ

MS = 1_000_000
FOOTPRINT = KvFootprint(
    architecture="M", token_bytes=8000, sequence_bytes=1_000_000, form="bfloat16 cache"
)
SETTINGS = EngineSettings(name="vllm", model="m")


def result(
    index: int, *, sent_ms: int = 0, ttft_ms: int = 100, tokens: int = 1000, cached: int | None = 0
) -> RequestResult:
    start = sent_ms * MS
    return RequestResult(
        index=index,
        outcome=RequestOutcome.OK,
        max_tokens=2,
        intended_ns=start,
        sent_ns=start,
        first_token_ns=start + ttft_ms * MS,
        last_token_ns=start + 2 * ttft_ms * MS,
        end_ns=start + 2 * ttft_ms * MS,
        usage=Usage(prompt_tokens=tokens, completion_tokens=2, cached_tokens=cached),
    )


def one_by_one(count: int = 3, **how: Any) -> list[RequestResult]:  # noqa: ANN401
    return [result(index, sent_ms=1000 * index, **how) for index in range(count)]


def told(count: float, total_s: float, **more: float) -> Series:
    start = dict.fromkeys(("prefill_s_count", "prefill_s_sum", *more), 0.0)
    end = {"prefill_s_count": count, "prefill_s_sum": total_s, **more}
    return Series(readings=(Reading(at_ns=0, values=start), Reading(at_ns=1, values=end)))


def test_one_at_a_time_the_time_is_ttft_and_the_record_says_so() -> None:
    found = kv_throughput(FOOTPRINT, one_by_one(), series=Series(), prompts_differ=True)
    assert found.source == "ttft"
    # (1000 x 8000 B + 1 MB) / 0.1 s
    assert found.values["kv_throughput_gb_s"] == pytest.approx(0.09)
    assert found.values["kv_throughput_gbit_s"] == pytest.approx(0.72)
    assert found.values["kv_cache_bytes"] == 8_000_000
    assert found.values["kv_state_bytes"] == 1_000_000


def test_the_servers_own_prefill_time_comes_first_at_any_concurrency() -> None:
    overlapping = [result(index) for index in range(4)]
    found = kv_throughput(FOOTPRINT, overlapping, series=told(4, 0.2), prompts_differ=True)
    assert found.source == "server"
    assert found.values["kv_throughput_gb_s"] == pytest.approx(9e6 / 0.05 / 1e9)


def test_overlapping_requests_without_a_servers_time_give_no_figure() -> None:
    found = kv_throughput(FOOTPRINT, [result(0), result(1)], series=Series(), prompts_differ=True)
    assert not found.values
    assert "requests overlapped" in str(found.missing)


@pytest.mark.parametrize("count", [9, 1])
def test_prefills_of_other_clients_are_not_taken_for_our_own(count: int) -> None:
    found = kv_throughput(FOOTPRINT, one_by_one(), series=told(count, 1.0), prompts_differ=True)
    assert found.source == "ttft"


def test_cached_tokens_were_left_by_another_prefill() -> None:
    found = kv_throughput(FOOTPRINT, one_by_one(cached=750), series=Series(), prompts_differ=False)
    assert found.values["kv_cache_bytes"] == 250 * 8000
    assert found.values["kv_throughput_gb_s"] == pytest.approx((250 * 8000 + 1e6) / 0.1 / 1e9)


def test_where_usage_is_silent_the_servers_counters_tell_what_was_computed() -> None:
    series = told(3, 0.3, prefix_queries=4000.0, prefix_hits=1000.0)
    found = kv_throughput(FOOTPRINT, one_by_one(cached=None), series=series, prompts_differ=False)
    assert found.values["kv_cache_bytes"] == 750 * 8000


def test_a_cache_that_nobody_tells_of_gives_no_figure_unless_no_prompt_could_hit_it() -> None:
    silent = one_by_one(cached=None)
    sure = kv_throughput(FOOTPRINT, silent, series=Series(), prompts_differ=True)
    unsure = kv_throughput(FOOTPRINT, silent, series=Series(), prompts_differ=False)
    assert sure.values["kv_cache_bytes"] == 8_000_000
    assert not unsure.values
    assert "cache" in str(unsure.missing)


def test_answers_that_were_not_streamed_have_no_prefill_time() -> None:
    whole = [replace(one, first_token_ns=None) for one in one_by_one()]
    found = kv_throughput(FOOTPRINT, whole, series=Series(), prompts_differ=True)
    assert "no answer was streamed" in str(found.missing)


def test_a_first_token_after_hidden_reasoning_is_no_end_of_a_prefill() -> None:
    late = [replace(one, notes=("hidden_reasoning",)) for one in one_by_one()]
    found = kv_throughput(FOOTPRINT, late, series=Series(), prompts_differ=True)
    assert not found.values
    one_seen = kv_throughput(
        FOOTPRINT, [*one_by_one()[:1], *late[1:]], series=Series(), prompts_differ=True
    )
    assert one_seen.source == "ttft"


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        (((1, 2, 3), (1, 2, 4)), True),
        (((*range(16), 1), (*range(16), 2)), False),
        (("a" * 70, "a" * 64 + "b"), False),
        (("ab", "ac"), True),
    ],
)
def test_prompts_differ_when_no_two_begin_alike(prompts: tuple[Any, ...], expected: bool) -> None:
    requests = [
        Request(index=index, prompt=prompt, max_tokens=1) for index, prompt in enumerate(prompts)
    ]
    assert differ(requests) is expected


def test_kimi_linear_leaves_what_its_paper_says(tmp_path: Path) -> None:
    folder = write_shape("kimi-linear-48b-a3b", into=tmp_path)
    for settings in (
        replace(SETTINGS, model=str(folder)),
        replace(SETTINGS, architecture="kimi-linear-48b-a3b"),
    ):
        found = kv_footprint(settings)
        assert found.token_bytes == 7 * 576 * 2
        assert found.sequence_bytes == pytest.approx(43.4e6, rel=0.01)
        assert found.form == "bfloat16 cache, float32 state"


def test_the_types_of_cache_and_state_are_the_engines() -> None:
    settings = replace(
        SETTINGS,
        architecture="kimi-linear-48b-a3b",
        kv_cache_dtype="fp8_e4m3",
        args={"mamba-ssm-cache-dtype": "bfloat16"},
    )
    found = kv_footprint(settings)
    assert found.token_bytes == 7 * 576
    assert found.form == "fp8 cache, bfloat16 state"


def test_the_type_of_a_models_own_config_holds_for_its_cache(tmp_path: Path) -> None:
    folder = write_shape("kimi-linear-48b-a3b", into=tmp_path)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"torch_dtype": "float32"}))
    assert kv_footprint(replace(SETTINGS, model=str(folder))).token_bytes == 7 * 576 * 4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (SETTINGS, "engine.architecture"),
        (replace(SETTINGS, architecture="kimi-k3", kv_cache_dtype="nvfp4"), "nvfp4"),
        (replace(SETTINGS, model="kimi-k3", args={"hf-overrides": {}}), "engine.architecture"),
        (replace(SETTINGS, architecture="kimi-k4"), "kimi-k3"),
    ],
)
def test_an_unknown_shape_or_type_is_never_guessed(settings: EngineSettings, words: str) -> None:
    with pytest.raises(BenchxError, match=words):
        kv_footprint(settings)
