"""The shipped serving scenarios, as far as they can be checked without their hardware."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from benchx.core.point import Point
from benchx.runner.serving_settings import engine_settings, settings_of, workload_settings
from benchx.scenario import ServingWords, Vocabulary, expand, load, shipped
from benchx.scenario.serving import ServingPart
from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.workloads.base import WorkloadSettings
from benchx.serving.workloads.build import DATASETS, build_workload
from benchx.serving.workloads.prompter import IdPrompter

NAMES = [name for name in shipped() if name.startswith("serving-")]
NEEDS = {name: DATASETS.get(name).needs for name in DATASETS.names()}
WORDS = Vocabulary(ops={}, serving=ServingWords(engines=ENGINES.names(), datasets=NEEDS))


def points(name: str) -> Iterator[tuple[ServingPart, Point]]:
    scenario = load(name)
    for point in expand(scenario, WORDS):
        part = scenario.parts[point.part]
        assert isinstance(part, ServingPart)
        yield part, point


def settings(name: str) -> EngineSettings:
    part, point = next(points(name))
    return engine_settings(settings_of(part), point)


def command(name: str) -> tuple[str, ...]:
    found = settings(name)
    launch = ENGINES.get(found.name).launch(found, port=8000)
    return launch.command


def value_of(name: str, flag: str) -> str:
    words = command(name)
    return words[words.index(flag) + 1]


@pytest.mark.parametrize("name", NAMES)
def test_every_point_gives_a_command_line_an_endpoint_and_a_known_workload(name: str) -> None:
    for part, point in points(name):
        plain = settings_of(part)
        found = engine_settings(plain, point)
        engine = ENGINES.get(found.name)
        assert engine.endpoint(found, port=8000).model
        as_stored = engine_settings(json.loads(json.dumps(plain)), point)
        if engine.starts:
            assert engine.launch(as_stored, port=8000) == engine.launch(found, port=8000)
        WorkloadSettings.from_json(workload_settings(plain, point))


@pytest.mark.parametrize("name", [name for name in NAMES if "agentic" not in name])
def test_the_smallest_point_of_every_scenario_can_be_made(name: str) -> None:
    part, point = next(points(name))
    wanted = workload_settings(settings_of(part), point)
    smaller = wanted | {"requests": 2} | ({"sessions": 2} if wanted.get("sessions") else {})
    made = build_workload(
        smaller,
        seed=0,
        salt="",
        api="completions",
        exact=ENGINES.get(part.engine.name).exact_length,
        prompter=IdPrompter(),
    )
    assert len(made.requests) == 2


def test_prompts_and_answers_fit_the_context_of_the_server() -> None:
    for name in ("serving-vllm-fixed", "serving-kimi-linear"):
        for part, point in points(name):
            plain = settings_of(part)
            limit = engine_settings(plain, point).max_model_len
            wanted = workload_settings(plain, point)
            assert limit is not None
            assert wanted["input_len"] + wanted["output_len"] <= limit


def test_k3_says_whether_prefixes_are_cached_and_starts_the_front_end_in_rust() -> None:
    for name in NAMES:
        if "-k3-nvidia" in name or "-k3-amd" in name:
            assert command(name)[:3] == ("vllm", "serve", "moonshotai/Kimi-K3")
            assert "--enable-prefix-caching" in command(name)
            assert settings(name).gpus == settings(name).gpus_asked == 8


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_k3_variants_add_one_thing_each_to_the_recipe(vendor: str) -> None:
    base, drafting, offload = (
        set(command(f"serving-k3-{vendor}{variant}")) for variant in ("", "-dspark", "-offload")
    )
    assert {word for word in drafting - base if word.startswith("--")} == {"--speculative-config"}
    assert {word for word in offload - base if word.startswith("--")} == {"--kv-transfer-config"}
    drafts = json.loads(value_of(f"serving-k3-{vendor}-dspark", "--speculative-config"))
    assert (drafts["method"], drafts["num_speculative_tokens"]) == ("dspark", 8)
    moved = json.loads(value_of(f"serving-k3-{vendor}-offload", "--kv-transfer-config"))
    assert moved["kv_connector_extra_config"]["cpu_bytes_to_use_per_rank"] == 128 * 2**30
    assert settings(f"serving-k3-{vendor}-offload").env["PYTHONHASHSEED"] == "0"


def test_the_hosted_scenario_names_a_variable_a_limit_and_no_secret() -> None:
    part, _ = next(points("serving-openrouter-k3"))
    assert part.engine.api_key_env == "OPENROUTER_API_KEY"
    assert part.load.spend_limit_usd is not None
    assert "Authorization" not in part.engine.headers
