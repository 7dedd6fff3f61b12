"""What looks like a secret is refused without being repeated."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from benchx.core.errors import ScenarioError
from benchx.scenario import load
from benchx.scenario.secret_words import is_secret, may_hold_secret

TEXT = """\
schema: 1
name: s
kind: serving
engine: {name: vllm, model: m}
workload: {dataset: random, input_len: 1k, output_len: 128, requests: 10}
axes: {concurrency: [1, 4]}
"""


def refused(tmp_path: Path, text: str, *overrides: str) -> str:
    """The error's message, and its traceback, which `--debug` shows."""
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as found:
        load(path, overrides=overrides)
    chain = "".join(traceback.format_exception(found.value)) if overrides else ""
    assert "sk-777" not in str(found.value) + chain.replace(repr(list(overrides)), "")
    return str(found.value)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("engine.api_key=sk-777", "--set engine.api_key=***: engine.api_key: unknown key (value *"),
        ("engine.extra_body.api_key=sk-777", "got 'api_key with a value'; expected no secret"),
        ("engine.headers={Authorization: Bearer sk-777}", "--set engine.headers=***: engine.head"),
        ("engine.args=--api-key sk-777", "engine.args: got ***; expected a mapping"),
        ("engine.env.HF_TOKEN=sk-777", "got 'HF_TOKEN with a value'"),
        ("engine.base_url=http://u:sk-777@h/v1", "got 'an address with a secret in it'"),
        ("engine.base_url=ftp://h/v1?%6bey=sk-777", "engine.base_url=***"),
        ("engine.api_key_env=sk-777", "got ***; expected the name of an environment variable"),
        ("engine.header_env={X-Key: sk-777}", "got ***; expected the name of an environment var"),
        ("engine.extra_body={api_key: 'sk-777", "the value can't be read as YAML"),
        ("engine.api_key=!sk-777", "the value can't be read as YAML"),
        ("Authorization: Bearer sk-777", "--set ***: not an assignment"),
    ],
)
def test_a_secret_given_by_set_is_not_repeated(tmp_path: Path, override: str, told: str) -> None:
    assert told in refused(tmp_path, TEXT, override)


def test_a_secret_in_the_file_is_not_repeated(tmp_path: Path) -> None:
    for key, told in (("api_key", "unknown key (value ***)"), ("api_key_env", "got ***")):
        text = TEXT.replace("model: m", f"model: m, {key}: sk-777")
        assert told in refused(tmp_path, text)


def test_what_is_no_secret_is_shown(tmp_path: Path) -> None:
    told = refused(tmp_path, TEXT, "workload.tokenizer=7", "engine.max_batched_tokens=many")
    assert "--set engine.max_batched_tokens=many" in told or "--set workload.tokenizer=7" in told


@pytest.mark.parametrize("key", ["Authorization", "x-api-key", "HF_TOKEN", "--api-key", "password"])
def test_keys_of_secrets_are_recognised(key: str) -> None:
    assert is_secret(key)
    assert may_hold_secret(f"engine.args={{{key}: x}}")


@pytest.mark.parametrize("key", ["tokenizer", "max-num-batched-tokens", "api", "image-token-id"])
def test_keys_about_tokens_of_a_model_are_not(key: str) -> None:
    assert not is_secret(key)
    assert not may_hold_secret(f"engine.args={{{key}: x}}")
