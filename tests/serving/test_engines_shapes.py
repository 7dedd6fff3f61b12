"""Shapes of real models without weights: what an engine reads is what the descriptor says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchx.architectures import load_architecture
from benchx.core.outcome import Outcome
from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.model_shapes import SHAPES, kimi_linear_config, write_shape

COMPARED = ("hidden", "layers", "vocab", "full_attention", "mla", "kda", "dense_layers", "moe")


@pytest.mark.parametrize("name", SHAPES)
def test_a_written_shape_reads_back_as_the_same_architecture(name: str, tmp_path: Path) -> None:
    folder = write_shape(name, into=tmp_path)
    there, here = load_architecture(str(folder)), load_architecture(name)
    for field in COMPARED:
        assert getattr(there, field) == getattr(here, field), field


def test_kda_and_mla_layers_of_a_shape_are_all_layers_once() -> None:
    config = kimi_linear_config(load_architecture("kimi-linear-48b-a3b"))
    kinds = config["linear_attn_config"]
    assert sorted(kinds["kda_layers"] + kinds["full_attn_layers"]) == list(range(1, 28))


def test_an_architecture_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="not of Kimi Linear's kind"):
        kimi_linear_config(load_architecture("llama-3.1-70b"))


def test_a_shape_is_served_with_made_up_weights_only() -> None:
    settings = EngineSettings(name="vllm", model=SHAPES[0], python=("sh",))
    missing = ENGINES.get("vllm").missing(settings)
    assert missing is not None
    assert missing.outcome is Outcome.UNSUPPORTED
    assert "load_format: dummy" in missing.reason


def test_vllm_is_prepared_with_the_folder_of_the_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = EngineSettings(name="vllm", model=SHAPES[0], load_format="dummy")
    prepared = ENGINES.get("vllm").prepare(settings)
    config = json.loads((Path(str(prepared.model)) / "config.json").read_text())
    assert config["model_type"] == "kimi_linear"


def test_vllm_serve_gets_its_model_first_and_as_no_flag() -> None:
    settings = EngineSettings(name="vllm", model="m", python=("vllm", "serve"))
    launch = ENGINES.get("vllm").launch(settings, port=1)
    assert launch.command[:3] == ("vllm", "serve", "m")
    assert "--model" not in launch.command
