"""The scripts under results/ that drive other load generators and read what they write."""

# ruff: noqa: ANN401 - the scripts are in no package, so their types have no name here

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchx.serving.groundtruth.stream import Pace, Truth

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = (RESULTS / "serving-client-2cores", RESULTS / "serving-agreement")

VLLM = {
    "completed": 4, "failed": 0, "duration": 2.0, "total_input_tokens": 400,
    "total_output_tokens": 512, "output_throughput": 256.0, "mean_ttft_ms": 11.0,
    "median_ttft_ms": 10.0,
    "p99_ttft_ms": 19.0, "mean_tpot_ms": 5.0, "p99_tpot_ms": 6.0,
}  # fmt: skip
AIPERF = {
    "request_count": {"unit": "requests", "avg": 4.0},
    "total_isl": {"unit": "tokens", "avg": 400.0},
    "total_osl": {"unit": "tokens", "avg": 512.0},
    "benchmark_duration": {"unit": "sec", "avg": 2.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 256.0},
    "time_to_first_token": {"unit": "ms", "avg": 11.0, "p50": 10.0, "p99": 19.0},
    "inter_token_latency": {"unit": "ms", "avg": 5.0, "p99": 6.0},
}
ROW = {
    "outcome": "ok", "reason": None, "samples": 4, "duration_s": 2.0, "input_tokens_mean": 100.0,
    "output_tokens_mean": 128.0, "output_throughput_tok_s": 256.0, "ttft_ms_mean": 11.0,
    "ttft_ms_p50": 10.0,
    "ttft_ms_p99": 19.0, "tpot_ms_mean": 5.0, "tpot_ms_p99": 6.0,
}  # fmt: skip


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a script by its name; all of them are forgotten afterwards."""
    names = {path.stem for folder in FOLDERS for path in folder.glob("*.py")}
    for folder in FOLDERS:
        monkeypatch.syspath_prepend(folder)
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def told(script: Callable[[str], ModuleType]) -> Any:
    """What all four files below say."""
    return script("truth_server").Told(
        requests=4,
        input_tokens=400,
        output_tokens=512,
        duration_s=2.0,
        output_tok_s=256.0,
        ttft_mean_ms=11.0,
        ttft_p50_ms=10.0,
        ttft_p99_ms=19.0,
        tpot_mean_ms=5.0,
        tpot_p99_ms=6.0,
    )


def client(script: Callable[[str], ModuleType], program: tuple[str, ...]) -> Any:
    """A client whose result is a file as vLLM writes it."""
    clients = script("clients")
    return clients.Client(
        name="fake", program=program, packages=(), arguments=lambda *_: [], read=clients.read_vllm
    )


def load(script: Callable[[str], ModuleType]) -> Any:
    return script("clients").Load(
        root_url="http://127.0.0.1:1", requests=4, streams=2, tokens=128, tokenizer=""
    )


def comparison(script: Callable[[str], ModuleType]) -> Any:
    return script("side_by_side").Comparison(
        url="http://127.0.0.1:1",
        tokenizer="",
        tokens=100,
        few=10,
        many=110,
        streams=2,
        burst_streams=2,
        burst_requests=4,
        pace=Pace(ttft_ms=0.0, token_ms=0.0),
    )


def test_the_result_of_vllm_is_read(
    script: Callable[[str], ModuleType], told: Any, tmp_path: Path
) -> None:
    (tmp_path / "vllm.json").write_text(json.dumps(VLLM))
    assert script("clients").read_vllm(tmp_path) == told


def test_the_last_line_of_sglang_counts(
    script: Callable[[str], ModuleType], told: Any, tmp_path: Path
) -> None:
    lines = [json.dumps({**VLLM, "completed": 3}), json.dumps(VLLM)]
    (tmp_path / "sglang.jsonl").write_text("\n".join(lines) + "\n")
    assert script("clients").read_sglang(tmp_path) == told


def test_the_summary_of_aiperf_is_read(
    script: Callable[[str], ModuleType], told: Any, tmp_path: Path
) -> None:
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps(AIPERF))
    assert script("clients").read_aiperf(tmp_path) == told


def test_a_run_of_benchx_is_read(
    script: Callable[[str], ModuleType], told: Any, tmp_path: Path
) -> None:
    write_run(tmp_path, ROW)
    assert script("clients").read_benchx(tmp_path) == told


def test_a_run_that_is_not_ok_has_no_figures(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    write_run(tmp_path, {**ROW, "outcome": "crashed", "reason": "refused"})
    with pytest.raises(ValueError, match="crashed: refused"):
        script("clients").read_benchx(tmp_path)


def write_run(folder: Path, row: dict[str, Any]) -> None:
    run = folder / "runs" / "one"
    run.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([row]), run / "points.parquet")


def test_a_client_that_did_less_than_the_load_has_failed(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    text = json.dumps({**VLLM, "completed": 3})
    program = (sys.executable, "-c", f"open('vllm.json', 'w').write('{text}')")
    with pytest.raises(script("side_by_side").ClientFailed, match="3 of 4 requests"):
        script("side_by_side").drive(client(script, program), load(script), tmp_path)


def test_a_client_that_wrote_nothing_is_shown_in_its_own_words(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    program = (sys.executable, "-c", "print('no such model')")
    with pytest.raises(script("side_by_side").ClientFailed, match="no such model"):
        script("side_by_side").drive(client(script, program), load(script), tmp_path)


def test_processes_that_a_client_leaves_behind_are_counted(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    leave = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
    out = tmp_path / "cost.json"
    command = [sys.executable, str(FOLDERS[0] / "tree_cost.py"), str(out), sys.executable, "-c"]
    subprocess.run([*command, leave], check=True)
    assert json.loads(out.read_text())["cpu_s"] >= 0.5


def test_start_up_is_no_part_of_the_cost_of_a_token(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    side_by_side = script("side_by_side")

    def drive(_: Any, load: Any, __: Path) -> Any:
        cpu_s = 7.0 + 1e-5 * load.requests * load.tokens
        return side_by_side.Ran(cpu_s=cpu_s, wall_s=1.0, largest_process_rss_mb=1.0, told=told)

    monkeypatch.setattr(side_by_side, "drive", drive)
    found = comparison(script).fixed_work(client(script, ("x",)))
    assert found["cpu_ms_per_1000_tokens"] == pytest.approx(10.0)
    assert found["start_up_cpu_s"] == pytest.approx(7.0)


def test_the_truth_is_that_of_the_counted_requests(script: Callable[[str], ModuleType]) -> None:
    truths = [
        Truth(key="", received_ns=0, first_ns=4_000_000, last_ns=24_000_000, tokens=11),
        Truth(key="", received_ns=0, first_ns=6_000_000, last_ns=46_000_000, tokens=11),
    ]
    found = script("truth_server").told_by_server(truths)
    assert (found.ttft_mean_ms, found.tpot_mean_ms) == (5.0, 3.0)
    assert found.output_tok_s == pytest.approx(22 / 0.046)


def test_a_failed_client_is_named_and_the_others_go_on(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    side_by_side = script("side_by_side")
    asked: list[str] = []

    def burst(_: Any, client: Any) -> dict[str, float]:
        asked.append(client.name)
        if client.name == "bad":
            raise side_by_side.ClientFailed("bad: code 1")
        return {"ttft_error_ms_mean": 1.0}

    monkeypatch.setattr(side_by_side.Comparison, "burst", burst)
    monkeypatch.setattr(side_by_side.Comparison, "fixed_work", lambda *_: {"cpu": 2.0})
    make = script("clients").Client
    clients = [
        make(name=name, program=("x/y/z",), packages=(), arguments=list, read=list)
        for name in ("good", "bad")
    ]
    found = side_by_side.compare(clients, comparison(script), rounds=2, say=lambda _: None)
    assert asked == ["good", "bad", "good"]
    assert found["bad"]["failed"] == "bad: code 1"
    assert (found["good"]["cpu"], found["good"]["burst_ttft_error_ms_mean"]) == (2.0, 1.0)


def test_clients_agree_within_five_percent_or_not(script: Callable[[str], ModuleType]) -> None:
    agree = script("agree")
    runs = [
        {
            "client": name,
            "output_tok_s": 100.0,
            "ttft_mean_ms": ttft,
            "ttft_p50_ms": 40.0,
            "tpot_mean_ms": 5.0,
            "truth": {"ttft_mean_ms": 40.0},
        }
        for name, ttft in (("vllm", 50.0), ("benchx", 40.0), ("benchx", 48.0), ("benchx", 90.0))
    ]
    found = agree.reduced(runs)
    assert found["deviations"]["ttft_mean_ms"] == pytest.approx(-0.04)
    assert found["within_limit"]["ttft_mean_ms"]
    assert found["deviations_from_server"] == {
        "benchx": {"ttft_mean_ms": pytest.approx(0.2)},
        "vllm": {"ttft_mean_ms": pytest.approx(0.25)},
    }
    without = agree.reduced([run for run in runs if run["ttft_mean_ms"] != 48.0])
    assert not without["within_limit"]["ttft_mean_ms"]
    assert without["within_limit"]["tpot_mean_ms"]


def test_loads_of_other_sizes_are_not_compared(script: Callable[[str], ModuleType]) -> None:
    agree = script("agree")
    target = agree.Target(name="t", url="http://x", model="m", tokenizer="", prompt=str)
    runs = [{"input_tokens": 10, "output_tokens": 7}, {"input_tokens": 11, "output_tokens": 7}]
    with pytest.raises(RuntimeError, match=r"prompts of \[10, 11\] tokens"):
        agree.check_equal_work(target, runs, 7)
    with pytest.raises(RuntimeError, match=r"\[7\] tokens, not 8"):
        agree.check_equal_work(target, runs[:1], 8)


def test_the_shape_has_the_tiny_model_s_tokenizer_and_no_weights(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    tiny, folder = tmp_path / "tiny", tmp_path / "shape"
    tiny.mkdir(), folder.mkdir()
    own = {"hidden_size": 128, "dtype": "float32", "vocab_size": 4096, "model_type": "llama"}
    (tiny / "config.json").write_text(json.dumps(own))
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (tiny / name).write_text("x")
    script("shape").write_shape(tiny, folder, {"num_hidden_layers": 2})
    names = {file.name for file in folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "tokenizer_config.json"}
    found = json.loads((folder / "config.json").read_text())
    assert (found["vocab_size"], found["model_type"]) == (4096, "llama")
    assert (found["hidden_size"], found["dtype"]) == (4096, "bfloat16")
    assert found["num_hidden_layers"] == 2


@pytest.mark.parametrize("graphs", [False, True])
def test_the_shape_is_served_with_graphs_or_eagerly(
    script: Callable[[str], ModuleType], graphs: bool
) -> None:
    targets = script("targets")
    tiny = targets.tiny_settings(targets.Choice(python=("py",)))
    found = targets.shape_settings(tiny, "folder", graphs=graphs)
    assert (found.model, found.load_format, found.python) == ("folder", "dummy", ("py",))
    assert (found.eager is None, "compilation-config" in found.args) == (graphs, graphs)


def test_a_size_is_the_target_s_unless_given(script: Callable[[str], ModuleType]) -> None:
    agree = script("agree")
    given = SimpleNamespace(requests=None, streams=None, input_tokens=None)
    assert agree.size_of("shape", given) == agree.SIZES["shape"]
    given.streams = 4
    assert agree.size_of("engine", given) == replace(agree.SIZES["engine"], streams=4)


def test_every_prompt_and_answer_of_a_load_is_of_its_size(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    agree = script("agree")
    target = agree.Target(
        name="t", url=None, model="m", tokenizer="", prompt=lambda _, tokens: "x" * tokens
    )
    size = agree.Size(input_tokens=5, output_tokens=(2, 4), requests=9)
    total = agree.write_load(target, size, tmp_path / "load.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "load.jsonl").read_text().splitlines()]
    lengths = [row["output_tokens"] for row in rows]
    assert {row["prompt"] for row in rows} == {"xxxxx"}
    assert (len(lengths), sum(lengths)) == (9, total)
    assert set(lengths) == {2, 3, 4}


def test_the_version_of_a_client_is_that_of_its_own_python(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    agree = script("agree")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho vllm 0.26.0\n")
    python.chmod(0o755)
    assert agree.version_of(client(script, (str(python),))) == "vllm 0.26.0"
    python.write_text("#!/bin/sh\nexit 1\n")
    assert agree.version_of(client(script, (str(python),))) is None


def test_the_engine_is_asked_for_the_load_alone(script: Callable[[str], ModuleType]) -> None:
    means_ms = script("engine_times").means_ms
    before, after = {"ttft_mean_ms": (3.0, 10.0)}, {"ttft_mean_ms": (4.0, 30.0)}
    assert means_ms(before, after) == {"ttft_mean_ms": pytest.approx(50.0)}


@pytest.mark.parametrize("events", [1, 4])
def test_a_replay_costs_something_for_each_way_of_reading(
    events: int, script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = script("replay")
    monkeypatch.setattr(replay, "ANSWERS", 20)
    monkeypatch.setattr(replay, "ROUNDS", 1)
    cost = replay.replay(16)[f"events_per_read_{events}"]
    assert set(cost) == {"receive_cpu_ms_per_1000_tokens", "decode_cpu_ms_per_1000_tokens"}
    assert all(value > 0 for value in cost.values())
