"""From typed settings to command lines and endpoints, engine by engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchx.core.errors import UsageError
from benchx.core.outcome import Outcome
from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.engines.flags import command_line, switch
from benchx.serving.engines.transformers import has_plain_attention

STARTED = [name for name in ENGINES.names() if name != "endpoint"]


def command(name: str, **fields: Any) -> tuple[str, ...]:  # noqa: ANN401 - JSON values
    launch = ENGINES.get(name).launch(EngineSettings(name=name, **fields), port=8123)
    return launch.command


def value_of(command: Sequence[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_vllm_gets_every_typed_setting_as_its_flag() -> None:
    made = command(
        "vllm",
        model="m",
        load_format="dummy",
        tensor_parallel=8,
        expert_parallel=True,
        prefix_caching=False,
        eager=True,
        gpu_memory_share=0.92,
        max_model_len=9472,
    )
    assert made[:3] == (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
    assert value_of(made, "--tensor-parallel-size") == "8"
    assert value_of(made, "--gpu-memory-utilization") == "0.92"
    assert value_of(made, "--max-model-len") == "9472"
    assert value_of(made, "--load-format") == "dummy"
    assert {"--enable-expert-parallel", "--enforce-eager", "--no-enable-prefix-caching"} <= {*made}
    assert "--dtype" not in made


def test_sglang_asks_for_metrics_and_for_the_cached_part_of_prompts() -> None:
    made = command("sglang", model="m", tensor_parallel=8, expert_parallel=True)
    assert {"--enable-metrics", "--enable-cache-report"} <= {*made}
    assert value_of(made, "--expert-parallel-size") == "8"
    assert "--disable-radix-cache" not in made
    assert "--disable-radix-cache" in command("sglang", model="m", prefix_caching=False)


def test_trtllm_names_its_program_and_model_first() -> None:
    made = command("trtllm", model="/models/k3", tensor_parallel=8, args={"backend": "pytorch"})
    assert made[:2] == ("trtllm-serve", "/models/k3")
    assert value_of(made, "--tp_size") == "8"
    assert value_of(made, "--backend") == "pytorch"


def test_the_python_server_of_llama_cpp_may_not_end_running_streams() -> None:
    made = command("llamacpp", model="m.gguf", python=(sys.executable,))
    assert value_of(made, "--interrupt_requests") == "False"


def test_the_context_of_llama_server_is_that_of_all_its_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    fields: dict[str, Any] = {"model": "m.gguf", "max_model_len": 8192}
    assert value_of(command("llamacpp", **fields), "--ctx-size") == "8192"
    many = command("llamacpp", **fields, max_num_seqs=16)
    assert (value_of(many, "--ctx-size"), value_of(many, "--parallel")) == ("131072", "16")
    shared = command("llamacpp", **fields, max_num_seqs=16, args={"kv-unified": True})
    assert value_of(shared, "--ctx-size") == "8192"


def test_transformers_serve_sizes_its_cache_and_uses_one_thread(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    launch = ENGINES.get("transformers").launch(
        EngineSettings(name="transformers", model=str(tmp_path)), port=1
    )
    assert "--continuous-batching" in launch.command
    assert value_of(launch.command, "--cb-num-blocks") == "512"
    assert launch.env["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    "config",
    [
        {"layer_types": ["linear_attention", "full_attention"]},
        {"kv_lora_rank": 512},
        {"text_config": {"linear_attn_config": {}}},
    ],
)
def test_latent_and_linear_attention_are_served_without_batching(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = EngineSettings(name="transformers", model=str(tmp_path))
    assert not has_plain_attention(str(tmp_path))
    assert "--continuous-batching" not in command("transformers", model=str(tmp_path))
    assert not ENGINES.get("transformers").capabilities(settings).batches


def test_an_unknown_model_is_not_taken_for_plain_attention() -> None:
    assert not has_plain_attention("no/such/folder")
    assert not has_plain_attention(None)


def test_what_runs_already_is_never_started() -> None:
    settings = EngineSettings(name="endpoint", model="m", base_url="http://h/v1")
    assert [name for name in ENGINES.names() if ENGINES.get(name).starts] == STARTED
    with pytest.raises(UsageError, match="starts nothing"):
        ENGINES.get("endpoint").launch(settings, port=1)


@pytest.mark.parametrize("name", STARTED)
def test_each_engine_listens_where_its_endpoint_says(name: str) -> None:
    settings = EngineSettings(name=name, model="m", python=("python",))
    made = command(name, model="m", python=("python",))
    assert value_of(made, "--port") == "8123"
    assert value_of(made, "--host") == "127.0.0.1"
    assert ENGINES.get(name).endpoint(settings, port=8123).base_url == "http://127.0.0.1:8123/v1"


@pytest.mark.parametrize("name", ENGINES.names())
def test_what_the_scenario_says_of_requests_is_sent_to_every_engine(name: str) -> None:
    """An engine that was told a key by its own environment refuses what does not carry it."""
    said: dict[str, Any] = {
        "headers": {"X-Team": "a"},
        "header_env": {"X-Token": "TOKEN"},
        "api_key_env": "VLLM_API_KEY",
        "extra_body": {"top_k": 1},
    }
    settings = EngineSettings(name=name, model="m", base_url="http://h/v1", **said)
    found = ENGINES.get(name).endpoint(settings, port=1)
    assert {key: getattr(found, key) for key in said} == said


@pytest.mark.parametrize("name", STARTED)
def test_the_environment_of_the_scenario_wins(name: str) -> None:
    settings = EngineSettings(name=name, model="m", env={"HF_HUB_OFFLINE": "0", "MINE": "1"})
    launch = ENGINES.get(name).launch(settings, port=1)
    assert (launch.env["HF_HUB_OFFLINE"], launch.env["MINE"]) == ("0", "1")


@pytest.mark.parametrize("name", STARTED)
def test_an_engine_that_is_not_here_says_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[type(ENGINES.get(name)).__module__]
    for place in (module, sys.modules["benchx.serving.engines.python_package"]):
        if hasattr(place, "find_spec"):
            monkeypatch.setattr(place, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "")
    missing = ENGINES.get(name).missing(EngineSettings(name=name, model="m"))
    assert missing is not None
    assert missing.outcome is Outcome.SKIPPED
    assert missing.install is not None


@pytest.mark.parametrize("name", STARTED)
def test_an_engine_without_a_model_is_unsupported(name: str) -> None:
    missing = ENGINES.get(name).missing(EngineSettings(name=name))
    assert missing is not None
    assert missing.outcome is Outcome.UNSUPPORTED


def test_a_setting_that_an_engine_has_no_flag_for_is_never_dropped() -> None:
    settings = EngineSettings(name="transformers", model="tiny", tensor_parallel=2)
    missing = ENGINES.get("transformers").missing(settings)
    assert missing is not None
    assert "engine.tensor_parallel" in missing.reason


def test_a_python_that_does_not_exist_is_named() -> None:
    settings = EngineSettings(name="vllm", model="m", python=("no-such-python",))
    missing = ENGINES.get("vllm").missing(settings)
    assert missing is not None
    assert "no-such-python" in missing.reason
    assert "vllm" in str(missing.install)


def test_pass_through_arguments_keep_their_form() -> None:
    passed: dict[str, Any] = {
        "speculative-config": {"method": "dspark", "num_speculative_tokens": 8},
        "stream-interval": 10,
        "enable-log-requests": True,
        "lora-modules": ("a=b", "c=d"),
    }
    made = command_line(("serve",), {}, passed)
    assert made == (
        "serve", "--speculative-config", '{"method":"dspark","num_speculative_tokens":8}',
        "--stream-interval", "10", "--enable-log-requests", "--lora-modules", "a=b", "c=d",
    )  # fmt: skip


@pytest.mark.parametrize("flag", ["max-model-len", "max_model_len", "--max-model-len"])
def test_a_flag_is_never_given_twice(flag: str) -> None:
    with pytest.raises(UsageError, match="--max-model-len is set by a field"):
        command("vllm", model="m", max_model_len=1, args={flag: 2})


def test_the_opposite_of_a_typed_switch_is_refused_too() -> None:
    with pytest.raises(UsageError, match="enable-prefix-caching"):
        command("vllm", model="m", prefix_caching=True, args={"no-enable-prefix-caching": True})


def test_a_flag_that_is_false_is_refused_because_its_meaning_is_unclear() -> None:
    with pytest.raises(UsageError, match="--no-async-scheduling"):
        command_line(("serve",), {}, {"async-scheduling": False})


def test_a_switch_is_left_out_unless_said() -> None:
    assert switch("x", None) == {}
    assert switch("x", True) == {"x": True}
    assert switch("x", False) == {"no-x": True}


def test_gpus_follow_from_the_splits() -> None:
    settings = EngineSettings(name="vllm", tensor_parallel=8, pipeline_parallel=2, data_parallel=2)
    assert settings.gpus_asked == 32
    assert EngineSettings(name="vllm").gpus_asked == 1


def test_each_engine_knows_its_own_way_to_an_exact_length() -> None:
    assert ENGINES.get("vllm").exact_length(8) == {"ignore_eos": True, "min_tokens": 8}
    made = ENGINES.get("transformers").exact_length(8)
    assert json.loads(made["generation_config"])["min_new_tokens"] == 8
    assert ENGINES.get("endpoint").exact_length(8) == {}


def test_vllm_without_a_tokenizer_streams_ids() -> None:
    settings = EngineSettings(name="vllm", model="m", args={"skip-tokenizer-init": True})
    body = ENGINES.get("vllm").endpoint(settings, port=1).extra_body
    assert body == {"detokenize": False, "return_token_ids": True}
    assert ENGINES.get("vllm").capabilities(settings).tokenize_path is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (None, "base_url"),
        ("127.0.0.1:8000", "expected an address"),
        ("http://u:secret@x/v1", "password"),
    ],
)
def test_an_endpoint_needs_a_clean_address(url: str | None, words: str) -> None:
    settings = EngineSettings(name="endpoint", model="m", base_url=url)
    with pytest.raises(UsageError, match=words) as caught:
        ENGINES.get("endpoint").endpoint(settings, port=0)
    assert "secret@" not in str(caught.value)


def test_an_endpoint_passes_on_key_headers_and_fields() -> None:
    settings = EngineSettings(
        name="endpoint",
        model="moonshotai/kimi-k3",
        base_url="https://openrouter.ai/api/v1",
        api="chat",
        api_key_env="OPENROUTER_API_KEY",
        headers={"X-Title": "benchx"},
        extra_body={"usage": {"include": True}},
    )
    made = ENGINES.get("endpoint").endpoint(settings, port=0)
    assert made.url == "https://openrouter.ai/api/v1/chat/completions"
    assert made.api_key_env == "OPENROUTER_API_KEY"
    assert made.headers == {"X-Title": "benchx"}
    assert made.extra_body == {"usage": {"include": True}}
