"""Prompts for a model in a folder: who counts the tokens."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from benchx.core.errors import UsageError
from benchx.serving.engines.base import Capabilities, EngineSettings
from benchx.serving.request import Api, Endpoint
from benchx.serving.workloads.build import build_workload
from benchx.serving.workloads.prompter import IdPrompter, TextPrompter, prompter_for
from benchx.serving.workloads.tokenizing import FileTokenizer

TEXT_ONLY = Capabilities(usage="always", done_marker=False, token_ids=False)
WITH_IDS = Capabilities(usage="always", done_marker=True, token_ids=True)


def endpoint(api: Api) -> Endpoint:
    return Endpoint(base_url="http://127.0.0.1:1/v1", api=api, model="m")


def test_ids_are_sent_where_they_may_be_and_stay_within_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 800}))
    settings = EngineSettings(name="vllm", model=str(tmp_path))
    prompter = prompter_for(settings, WITH_IDS, endpoint("completions"))
    assert isinstance(prompter, IdPrompter)
    made = prompter.make(random.Random(0), 5000)
    assert all(100 <= int(token) < 800 for token in made)


def test_without_a_tokenizer_lengths_are_approximate_and_not_called_counted(tmp_path: Path) -> None:
    settings = EngineSettings(name="endpoint", model="vendor/model")
    prompter = prompter_for(settings, TEXT_ONLY, endpoint("chat"))
    assert not prompter.exact
    made = build_workload(
        {"dataset": "random", "requests": 2, "input_len": 30, "output_len": 4},
        seed=0,
        salt="",
        api="chat",
        exact=lambda _tokens: {},
        prompter=prompter,
    )
    assert [request.prompt_tokens for request in made.requests] == [None, None]
    assert [len(str(request.prompt).split()) for request in made.requests] == [30, 30]
    assert any("approximate" in note for note in made.notes)


def test_a_tokenizer_that_is_named_and_absent_is_an_error(tmp_path: Path) -> None:
    settings = EngineSettings(name="endpoint", model="m", tokenizer=str(tmp_path))
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        prompter_for(settings, TEXT_ONLY, endpoint("chat"))


def test_a_real_byte_level_tokenizer_gives_exact_prompts(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(["miko seran tolo miko tolo sera nimo kora"] * 9, trainer)
    bpe.save(str(tmp_path / "tokenizer.json"))
    counted = FileTokenizer(tmp_path)
    prompter = TextPrompter(counted)
    rng = random.Random(3)
    start = prompter.make(rng, 50)
    for tokens in (50, 51, 333):
        made = prompter.make(rng, tokens, after=start)
        assert prompter.count(made) == tokens
        assert str(made).startswith(str(start))
    with pytest.raises(UsageError, match="can't begin with"):
        prompter.make(rng, 49, after=start)
