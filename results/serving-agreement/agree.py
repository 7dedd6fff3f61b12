"""Whether benchx and `vllm bench serve` report the same of the same load; see README.md.

Both are started as programs, in turn, on one running server. They send the same prompts in the same
order, ask for the same lengths and keep the same number of requests under way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchx.serving.engines.base import EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.engines.readiness import root_url
from benchx.serving.engines.session import running
from benchx.serving.groundtruth.stream import Pace
from benchx.serving.workloads.prompter import COMMON_WORDS, TextPrompter
from benchx.serving.workloads.tokenizing import ServerTokenizer

# The programs of other clients are driven and read as in the other benchmark.
sys.path.insert(0, str(Path(__file__).parents[1] / "serving-client-2cores"))

from clients import OFFLINE, Client, Load, read_benchx, read_vllm, words
from side_by_side import drive
from truth_server import TruthServer, told_by_server

INPUT_TOKENS = 128
OUTPUT_TOKENS = (32, 96)
STREAMS = 8
PACE = Pace(ttft_ms=100.0, token_ms=5.0)
COMPARED = ("output_tok_s", "ttft_mean_ms", "tpot_mean_ms")
LIMIT = 0.05


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
        python=words(python),
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


TARGETS = {"engine": engine, "ground_truth": ground_truth}


def write_load(target: Target, requests: int, file: Path) -> int:
    """Prompts with output lengths that differ, so that the streams do not run in step.

    Returns:
        The sum of the output lengths.
    """
    rng, total = random.Random(0), 0
    with file.open("w") as out:
        for _ in range(requests):
            tokens = rng.randint(*OUTPUT_TOKENS)
            total += tokens
            out.write(json.dumps({"prompt": target.prompt(rng), "output_tokens": tokens}) + "\n")
    return total


def vllm_words(target: Target, file: Path, load: Load, folder: Path) -> list[str]:
    """`vllm bench serve` with the prompts of a file as they are; no ready check, no warm-up."""
    options = {
        "--backend": "openai",
        "--base-url": load.root_url,
        "--endpoint": "/v1/completions",
        "--model": target.model,
        "--tokenizer": load.tokenizer,
        "--dataset-name": "custom",
        "--dataset-path": str(file),
        "--custom-output-len": "-1",
        "--num-prompts": str(load.requests),
        "--max-concurrency": str(load.streams),
        "--result-dir": str(folder),
        "--result-filename": "vllm.json",
    }
    flags = ["--disable-shuffle", "--skip-chat-template", "--ignore-eos", "--disable-tqdm"]
    pairs = [word for pair in options.items() for word in pair]
    return ["bench", "serve", *pairs, *flags, "--save-result"]


def benchx_words(target: Target, file: Path, load: Load, folder: Path) -> list[str]:
    """`benchx run` on a server that runs already, with the same file and the same body fields."""
    scenario = {
        "schema": 1,
        "name": "agreement",
        "title": "The load of the other client",
        "kind": "serving",
        "engine": {
            "name": "endpoint",
            "base_url": f"{load.root_url}/v1",
            "api": "completions",
            "model": target.model,
            "extra_body": {"ignore_eos": True, "repetition_penalty": 1.0},
        },
        "workload": {
            "dataset": "custom",
            "path": str(file),
            "salted": False,
            "requests": load.requests,
        },
        "load": {"warmup": False},
        "axes": {"concurrency": [load.streams]},
        "measure": {"launches": 1},
    }
    path = folder / "agreement.yaml"
    path.write_text(json.dumps(scenario))  # JSON is YAML
    return ["run", str(path), "--out", str(folder / "runs"), "--no-report"]


def clients_of(target: Target, vllm: str, file: Path) -> dict[str, Client]:
    """The two, ready to be driven."""
    theirs = Client(
        name="vllm",
        program=words(vllm),
        packages=("vllm", "vllm_cpu"),
        arguments=partial(vllm_words, target, file),
        read=read_vllm,
        env=OFFLINE,
    )
    ours = Client(
        name="benchx",
        program=(sys.executable, "-m", "benchx"),
        packages=("benchx",),
        arguments=partial(benchx_words, target, file),
        read=read_benchx,
        env={"OMP_NUM_THREADS": "1"},
    )
    return {"benchx": ours, "vllm": theirs}


def run_once(client: Client, target: Target, load: Load) -> dict[str, Any]:
    """One load; what the client reports and, where the server tells, what really happened.

    Raises:
        ClientFailed: The client failed or did not send the whole load.
    """
    with TemporaryDirectory() as folder:
        if target.url is not None:
            told = drive(client, replace(load, root_url=target.url), Path(folder)).told
            return {"client": client.name, **asdict(told)}
        with TruthServer(PACE) as server:
            told = drive(client, replace(load, root_url=server.root_url), Path(folder)).told
            truth = told_by_server(server.stop()[-load.requests :])
    return {"client": client.name, **asdict(told), "truth": asdict(truth)}


def agreement(target: Target, vllm: str, *, runs: int, requests: int) -> dict[str, Any]:
    """Both clients in turn, medians and deviations; the first load warms up and is not counted.

    Raises:
        RuntimeError: The two did not do the same work.
    """
    found: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "load.jsonl"
        output_tokens = write_load(target, requests, file)
        load = Load(
            root_url="", requests=requests, streams=STREAMS, tokens=0, tokenizer=target.tokenizer
        )
        clients = clients_of(target, vllm, file)
        run_once(clients["benchx"], target, load)
        for number in range(runs):
            order = ("benchx", "vllm") if number % 2 == 0 else ("vllm", "benchx")
            for name in order:
                seen = run_once(clients[name], target, load)
                found.append(seen)
                print(target.name, number, json.dumps(seen), flush=True)
    check_equal_work(target, found, output_tokens)
    versions = {name: client.version for name, client in clients.items()}
    return {"server": target.version, "clients": versions, "runs": found, **reduced(found)}


def check_equal_work(target: Target, runs: Sequence[Mapping[str, Any]], output_tokens: int) -> None:
    """Raise RuntimeError unless all loads had the same tokens, by the server's own counts.

    The ground-truth server has no tokenizer: what it says of prompts is their size.
    """
    outputs = {run["output_tokens"] for run in runs}
    inputs = {run["input_tokens"] for run in runs}
    if outputs != {output_tokens}:
        raise RuntimeError(f"{target.name}: {sorted(outputs)} tokens, not {output_tokens}")
    if target.url is not None and len(inputs) > 1:
        raise RuntimeError(f"{target.name}: prompts of {sorted(inputs)} tokens")


def reduced(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Median per client, and by how much that of benchx differs as a share of the other's."""
    medians = {
        client: {
            name: median(run[name] for run in runs if run["client"] == client) for name in COMPARED
        }
        for client in ("benchx", "vllm")
    }
    deviations = {name: medians["benchx"][name] / medians["vllm"][name] - 1 for name in COMPARED}
    agrees = all(abs(value) <= LIMIT for value in deviations.values())
    return {"medians": medians, "deviations": deviations, "agrees": agrees} | from_truth(runs)


def from_truth(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Median over runs of each client's own deviation from the truth; empty without one."""
    if any("truth" not in run for run in runs):
        return {}
    deviations = {
        client: {
            name: median(
                run[name] / run["truth"][name] - 1 for run in runs if run["client"] == client
            )
            for name in COMPARED
        }
        for client in ("benchx", "vllm")
    }
    return {"deviations_from_truth": deviations}


def main() -> None:
    """Measure the targets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--vllm", required=True, help="words that start `vllm`, the other client")
    parser.add_argument("--engine-python", required=True, help="a Python that has vLLM")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="default: both")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=96)
    given = parser.parse_args()
    found: dict[str, Any] = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "load_average": os.getloadavg()[0],
        },
        "load": {
            "requests": given.requests,
            "streams": STREAMS,
            "input_tokens": INPUT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
        },
    }
    for name in given.target or TARGETS:
        with TARGETS[name](given.engine_python) as target:
            found[name] = agreement(target, given.vllm, runs=given.runs, requests=given.requests)
        print(name, json.dumps(found[name]["deviations"]), flush=True)
        given.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
