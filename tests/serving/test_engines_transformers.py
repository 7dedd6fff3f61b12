"""`transformers serve` for real, on the model that is built on the spot.

Runs in the Python named by BENCHX_TRANSFORMERS_PYTHON, else in this one when it has the extra.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from benchx.core.errors import RunFailed
from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.engines.session import RunningEngine, running
from benchx.serving.request import Endpoint, Request
from benchx.serving.tiny_model import KIMI_LINEAR, LLAMA, TinyModel, build
from benchx.serving.trial import Trial, try_once
from benchx.serving.workloads.prompter import prompter_for

PYTHON = os.environ.get("BENCHX_TRANSFORMERS_PYTHON")
REQUEST = Request(index=1, prompt="miko seran tolo", max_tokens=12)

needs_transformers = pytest.mark.skipif(
    PYTHON is None and find_spec("transformers") is None,
    reason="needs `pip install 'benchx[transformers]'` or BENCHX_TRANSFORMERS_PYTHON",
)


@pytest.fixture(scope="module", params=["tiny", "tiny-llama"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningEngine]:
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    settings = EngineSettings(
        name="transformers",
        model=request.param,
        python=() if PYTHON is None else (PYTHON,),
        ready_timeout_s=240,
        args={"device": "cpu"},
    )
    try:
        with running(ENGINES.get("transformers"), settings, log=folder / "engine.log") as found:
            yield found
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
    assert found.process is not None
    assert found.process.exit_code() is not None
    assert not psutil.pid_exists(found.process.pid)


def ask(engine: RunningEngine, request: Request = REQUEST, **changes: object) -> Trial:
    extra = ENGINES.get("transformers").exact_length(request.max_tokens)
    endpoint: Endpoint = replace(engine.endpoint, **changes)  # type: ignore[arg-type]
    return try_once(endpoint, replace(request, extra=extra | dict(request.extra)), 120)


@needs_transformers
@pytest.mark.engine
def test_it_generates_exactly_as_many_tokens_as_asked(engine: RunningEngine) -> None:
    for api in ("completions", "chat"):
        found = ask(engine, api=api)
        assert found.problem is None
        assert found.facts.completion_tokens == 12
        assert found.facts.finish_reason == "length"


@needs_transformers
@pytest.mark.engine
@pytest.mark.parametrize("tokens", [1, 40, 333])
def test_the_server_counts_as_many_tokens_in_a_prompt_as_we_do(
    engine: RunningEngine, tokens: int
) -> None:
    pytest.importorskip("tokenizers")
    prompter = prompter_for(engine.settings, engine.capabilities, engine.endpoint)
    prompt = prompter.make(random.Random(tokens), tokens)
    assert ask(engine, replace(REQUEST, prompt=prompt)).facts.prompt_tokens == tokens


@needs_transformers
@pytest.mark.engine
def test_each_chunk_of_the_tiny_model_is_one_token(engine: RunningEngine) -> None:
    assert ask(engine).facts.payloads == REQUEST.max_tokens


@needs_transformers
@pytest.mark.engine
def test_it_behaves_as_its_adapter_says(engine: RunningEngine) -> None:
    found, said = ask(engine), engine.capabilities
    assert found.facts.usage_at == "last_choice"
    assert found.facts.done == said.done_marker
    refused = ask(engine, replace(REQUEST, extra={"ignore_eos": True}))
    assert refused.status == 422
    ids = ask(engine, replace(REQUEST, prompt=(5, 6, 7)))
    assert not said.token_ids
    assert ids.problem is not None


@needs_transformers
@pytest.mark.engine
def test_plain_attention_is_batched_and_linear_attention_is_not(engine: RunningEngine) -> None:
    plain = "--continuous-batching" in engine.command
    assert plain == engine.capabilities.batches
    assert plain == ("llama" in str(engine.settings.model))


@needs_transformers
@pytest.mark.engine
def test_a_tiny_model_is_built_once(tmp_path: Path) -> None:
    python = () if PYTHON is None else (PYTHON,)
    folder = build(TinyModel(config=LLAMA, vocabulary=600), python=python, into=tmp_path)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    again = build(TinyModel(config=LLAMA, vocabulary=600), python=python, into=tmp_path)
    assert again == folder
    assert (again / "model.safetensors").stat().st_mtime_ns == written
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_models_that_differ_do_not_share_a_folder() -> None:
    base = TinyModel()
    others = [replace(base, seed=1), replace(base, config=LLAMA), replace(base, vocabulary=512)]
    assert len({base.digest, *(other.digest for other in others)}) == 4


def test_the_tiny_model_has_one_mla_layer_for_three_of_kda() -> None:
    kinds = KIMI_LINEAR["layer_types"]
    assert kinds.count("linear_attention") == 3 * kinds.count("full_attention")
    assert len(kinds) == KIMI_LINEAR["num_hidden_layers"]


def test_a_builder_that_fails_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    broken = TinyModel(config={"model_type": "no_such_model"}, vocabulary=400)
    with pytest.raises(RunFailed, match="can't be built"):
        build(broken, python=(sys.executable,), into=tmp_path)
    assert not list(tmp_path.iterdir())
