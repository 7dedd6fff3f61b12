"""The servers that both clients load: a real engine, and one that knows what it did."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.engines.readiness import root_url
from benchx.serving.engines.session import running
from benchx.serving.workloads.prompter import COMMON_WORDS, TextPrompter
from benchx.serving.workloads.tokenizing import ServerTokenizer

INPUT_TOKENS = 128


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server under load.

    Attributes:
        name: As in the results.
        url: Its root, without `/v1`; None: the ground-truth server, started for each load.
        model: As the server knows it.
        tokenizer: Folder, for the client that also counts by itself.
        prompt: Makes a prompt from a generator of random numbers.
        version: Package and version; None for the ground-truth server.
    """

    name: str
    url: str | None
    model: str
    tokenizer: str
    prompt: Callable[[random.Random], str]
    version: str | None = None


@contextmanager
def engine(python: str) -> Iterator[Target]:
    """A tiny random model in vLLM, as the tests start it; prompts are counted by the server."""
    settings = engine_settings(python)
    with TemporaryDirectory() as folder:
        log = Path(folder) / "engine.log"
        with running(ENGINES.get("vllm"), settings, log=log) as found:
            url = root_url(found.endpoint.base_url, "")
            prompter = TextPrompter(ServerTokenizer(found.endpoint, f"{url}/tokenize"))
            yield Target(
                name="engine",
                url=url,
                model=found.endpoint.model,
                tokenizer=str(found.settings.model),
                prompt=lambda rng: str(prompter.make(rng, INPUT_TOKENS)),
                version=found.version,
            )


def engine_settings(python: str) -> EngineSettings:
    """On CPU, without what would make the second of two equal loads faster than the first."""
    return EngineSettings(
        name="vllm",
        model="tiny-llama",
        python=tuple(shlex.split(python)),
        eager=True,
        max_model_len=2048,
        prefix_caching=False,
        ready_timeout_s=600,
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"},
    )


@contextmanager
def ground_truth(python: str) -> Iterator[Target]:
    """The bundled server; the tokenizer is that of the tiny model."""
    prepared = ENGINES.get("vllm").prepare(engine_settings(python))
    yield Target(
        name="ground_truth",
        url=None,
        model="truth",
        tokenizer=str(prepared.model),
        prompt=lambda rng: " ".join(rng.choices(COMMON_WORDS, k=INPUT_TOKENS)),
    )


OPEN = {"engine": engine, "ground_truth": ground_truth}
REQUESTS = {"engine": 128, "ground_truth": 48}
