"""The servers that both clients load: real engines, and one that knows what it did."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shape import SMALL, write_shape

from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.engines.readiness import root_url
from benchx.serving.engines.session import RunningEngine, running
from benchx.serving.workloads.prompter import COMMON_WORDS, TextPrompter
from benchx.serving.workloads.tokenizing import ServerTokenizer

DECODE_GRAPHS: Mapping[str, Any] = {
    "mode": 0,
    "cudagraph_mode": "FULL_DECODE_ONLY",
    "max_cudagraph_capture_size": 64,
}
"""vLLM's `compilation-config`: CUDA graphs of decode steps of so many; nothing is compiled."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much both clients send.

    Attributes:
        input_tokens: Of every prompt.
        output_tokens: Shortest and longest answer: streams of one length would run in step.
        streams: Requests under way at a time.
        requests: In all.
    """

    input_tokens: int = 128
    output_tokens: tuple[int, int] = (32, 96)
    streams: int = 8
    requests: int = 128


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the user says of the engines.

    Attributes:
        python: Words that start a Python with vLLM; empty: the one that runs this.
        graphs: Whether `shape` replays CUDA graphs in decode steps.
        config: Fields of the config.json of `shape` in the place of its own.
    """

    python: tuple[str, ...] = ()
    graphs: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server under load.

    Attributes:
        name: As in the results.
        url: Its root, without `/v1`; None: the ground-truth server, started for each load.
        model: As the server knows it.
        tokenizer: Folder, for the client that also counts by itself.
        prompt: Makes a prompt of so many tokens from a generator of random numbers.
        about: Version, command line and GPUs; None for the ground-truth server.
    """

    name: str
    url: str | None
    model: str
    tokenizer: str
    prompt: Callable[[random.Random, int], str]
    about: Mapping[str, Any] | None = None


@contextmanager
def engine(choice: Choice) -> Iterator[Target]:
    """A model with random weights in vLLM, slow enough on two cores, see `SMALL`."""
    with _shaped("engine", replace(choice, graphs=False, config={**SMALL, **choice.config})) as it:
        yield it


@contextmanager
def shape(choice: Choice) -> Iterator[Target]:
    """A model as large as real ones, with random weights, for a GPU."""
    with _shaped("shape", choice) as it:
        yield it


@contextmanager
def _shaped(name: str, choice: Choice) -> Iterator[Target]:
    tiny = ENGINES.get("vllm").prepare(tiny_settings(choice))
    with TemporaryDirectory() as folder:
        write_shape(Path(str(tiny.model)), Path(folder), choice.config)
        with _started(shape_settings(tiny, folder, graphs=choice.graphs)) as found:
            yield _target(name, found)


@contextmanager
def ground_truth(choice: Choice) -> Iterator[Target]:
    """The bundled server; the tokenizer is that of the tiny model."""
    prepared = ENGINES.get("vllm").prepare(tiny_settings(choice))
    yield Target(
        name="ground_truth",
        url=None,
        model="truth",
        tokenizer=str(prepared.model),
        prompt=lambda rng, tokens: " ".join(rng.choices(COMMON_WORDS, k=tokens)),
    )


def tiny_settings(choice: Choice) -> EngineSettings:
    """Without what would make the second of two equal loads faster than the first."""
    return EngineSettings(
        name="vllm",
        model="tiny-llama",
        python=choice.python,
        eager=True,
        max_model_len=2048,
        prefix_caching=False,
        ready_timeout_s=600,
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"},
    )


def shape_settings(tiny: EngineSettings, folder: str, *, graphs: bool) -> EngineSettings:
    """The same without weights; FlashInfer's sampler would be compiled on first use."""
    return replace(
        tiny,
        model=folder,
        load_format="dummy",
        eager=None if graphs else True,
        args={"compilation-config": dict(DECODE_GRAPHS)} if graphs else {},
        env={**tiny.env, "VLLM_USE_FLASHINFER_SAMPLER": "0"},
    )


@contextmanager
def _started(settings: EngineSettings) -> Iterator[RunningEngine]:
    with TemporaryDirectory() as folder:
        log = Path(folder) / "engine.log"
        with running(ENGINES.get("vllm"), settings, log=log) as found:
            yield found


def _target(name: str, found: RunningEngine) -> Target:
    """Prompts are counted by the server."""
    url = root_url(found.endpoint.base_url, "")
    prompter = TextPrompter(ServerTokenizer(found.endpoint, f"{url}/tokenize"))
    return Target(
        name=name,
        url=url,
        model=found.endpoint.model,
        tokenizer=str(found.settings.model),
        prompt=lambda rng, tokens: str(prompter.make(rng, tokens)),
        about=found.to_json(),
    )


OPEN = {"engine": engine, "ground_truth": ground_truth, "shape": shape}
SIZES = {
    "engine": Size(requests=64),
    "ground_truth": Size(requests=48),
    "shape": Size(input_tokens=1024, streams=32, requests=96),
}
"""Target -> its load unless the command line says otherwise."""
