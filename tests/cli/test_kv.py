"""`benchx kv`: the tables, their sources, what is unknown, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchx.architectures import load_architecture
from benchx.architectures.parameters import parameters
from benchx.architectures.variants import sliced

KIMI = "kimi-linear-48b-a3b"
RESULTS = Path(__file__).parents[2] / "results"
PREFILL, TIERS = RESULTS / "h200-kv-throughput", RESULTS / "h200-kv-tiers"
VERSUS = RESULTS / "h200-hybrid-vs-full"
"""Runs that are part of the repository."""

Command = Callable[..., Any]
Made = Callable[[str, list[dict[str, Any]]], str]


def test_sizes_need_no_machine_and_unknown_times_stay_absent(benchx: Command) -> None:
    found = benchx("kv", "kimi-k3", "--cache-dtype", "fp8")
    assert found.code == 0, found.err
    assert "a token leaves 13,824 B" in found.out
    assert "429 MiB of state" in found.out
    assert "as much as 32,507 tokens" in found.out
    assert "prefill times: unknown" in found.out
    row = next(line for line in found.out.splitlines() if line.startswith("32k"))
    assert row.split()[5:8] == ["-", "-", "-"]


def test_a_machine_bounds_the_prefill_and_says_how(benchx: Command) -> None:
    found = benchx("kv", KIMI, "--hardware", "h200", "--mfu", "40%", "--context", "32k")
    assert "40% of the bf16 rate of 1 x NVIDIA H200" in found.out
    row = next(line for line in found.out.splitlines() if line.startswith("32k"))
    assert "3.77" in row  # arXiv 2604.15039, table 3, measured 3.87 Gbit/s


def test_json_holds_the_same_figures(benchx: Command) -> None:
    found = benchx("kv", KIMI, "--hardware", "h200", "--context", "1k,1M", "--json")
    data = json.loads(found.out)
    assert data["cache_bytes_per_token"] == 8064
    assert data["state_bytes"] == 43_417_600
    first, last = data["contexts"]
    assert first["total_bytes"] == 1024 * 8064 + 43_417_600
    assert last["kv_throughput_gb_s"] < first["kv_throughput_gb_s"]
    assert first["sequences"] > last["sequences"] > 0
    assert data["machine"]["gpus"] == 1


def test_weights_that_do_not_fit_leave_no_sequence_and_say_so(benchx: Command) -> None:
    found = benchx("kv", "kimi-k3", "--hardware", "h200")
    assert "leave no room" in found.out
    many = benchx("kv", "kimi-k3", "--hardware", "h200", "--gpus", "32", "--json")
    assert json.loads(many.out)["contexts"][0]["sequences"] > 0


def test_context_ranks_make_room_for_more_sequences(benchx: Command) -> None:
    def sequences(*more: str) -> int:
        out = benchx("kv", "kimi-k3", "--hardware", "b300", "--gpus", "8", "--context", "1M",
                     "--json", *more).out  # fmt: skip
        return int(json.loads(out)["contexts"][0]["sequences"])

    assert sequences("--dcp", "8") > 4 * sequences()


def test_a_tier_of_ones_own_is_added(benchx: Command) -> None:
    found = benchx("kv", KIMI, "--hardware", "h200", "--tier", "tape=0.01")
    rows = [line for line in found.out.splitlines() if line.startswith("tape")]
    assert rows[0].split()[1] == "0.01"
    assert rows[1].startswith("tape ")
    assert rows[-1] == "tape: given by the user"


@pytest.mark.parametrize("name", [KIMI, "kimi-k3", "llama-3.1-70b"])
def test_the_tables_fit_a_hundred_columns(benchx: Command, name: str) -> None:
    found = benchx("kv", name, "--hardware", "h200", "--gpus", "8", "--tier", "filer=2.5")
    lines = found.out.splitlines()
    notes = next(at for at, line in enumerate(lines) if line.startswith("prefill times:"))
    tables = [line for line in lines[:notes] if not line.startswith("parameters")]
    assert max(map(len, tables)) <= 100


def test_each_tier_has_a_time_to_load_each_context(benchx: Command) -> None:
    lines = benchx("kv", KIMI, "--tier", "tape=0.01", "--context", "1k,8k").out.splitlines()
    assert any(line.split() == ["time", "to", "load", "1k", "8k"] for line in lines)
    rows = [line.split() for line in lines if line.startswith("tape ")]
    # (tokens x 8,064 B + 43,417,600 B) / 10 MB/s
    assert rows[1] == ["tape", "5.17", "s", "10.9", "s"]


def test_unconfirmed_fields_and_sources_are_shown(benchx: Command) -> None:
    found = benchx("kv", KIMI)
    assert "unconfirmed: hidden, dense_intermediate, moe.intermediate" in found.out
    assert "arXiv 2510.26692" in found.out


def test_models_without_state_have_no_checkpoints(benchx: Command) -> None:
    assert "checkpoint" not in benchx("kv", "llama-3.1-70b", "--hardware", "h200").out


def test_weights_and_sequences_of_several_groups_are_told_per_group(benchx: Command) -> None:
    asked = ("kv", "kimi-k3", "--hardware", "b300", "--context", "1k")
    one = benchx(*asked, "--gpus", "8").out
    two = benchx(*asked, "--gpus", "16", "--tp", "8").out
    assert "182 GiB on each GPU (tensor-parallel groups of 8)" in two
    alone = "sequences: of that context, in the memory of one tensor-parallel group of 8 GPUs"
    assert f"{alone} beside the weights\n" in one
    assert f"{alone} beside the weights; each of the 2 holds as many\n" in two
    assert [line.split()[-1] for line in (one + two).splitlines() if line.startswith("1k")] == [
        "864", "864",
    ]  # fmt: skip
    attention = benchx(*asked, "--gpus", "16", "--tp", "8", "--ep", "16").out
    assert "97.4 GiB on each GPU (tensor-parallel groups of 8, routed experts over 16)" in attention


def test_ranks_without_a_number_of_gpus_are_as_many_gpus(benchx: Command) -> None:
    asked = ("kv", "kimi-k3", "--hardware", "b300", "--json")
    for ranks, gpus in ((("--tp", "8"), 8), (("--ep", "16"), 16), (("--tp", "4", "--ep", "8"), 8)):
        assert json.loads(benchx(*asked, *ranks).out)["machine"]["gpus"] == gpus


def test_headings_that_are_no_everyday_words_are_explained(benchx: Command) -> None:
    found = benchx("kv", KIMI, "--hardware", "h200").out
    for heading in ("sequences", "checkpoint every", "in a full context", "time to load"):
        assert f"\n{heading}: " in found
    assert "all of it once, over one link" in found


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("kimi-k33",), "did you mean 'kimi-k3'"),
        ((KIMI, "--context", "2M"), "is made for 1 to 1048576 tokens"),
        ((KIMI, "--context", "many"), "--context"),
        ((KIMI, "--hardware", "h20"), "did you mean 'h200'"),
        ((KIMI, "--mfu", "140%", "--hardware", "h200"), "--mfu"),
        ((KIMI, "--mfu", "0", "--hardware", "h200"), "above 0"),
        ((KIMI, "--tier", "nvme"), "NAME=GB/s"),
        ((KIMI, "--tier", "nvme=fast"), "NAME=GB/s"),
        ((KIMI, "--cache-dtype", "int3"), "unknown dtype 'int3'"),
        ((KIMI, "--tp", "8", "--dcp", "3"), "do not divide"),
        ((KIMI, "--tp", "8", "--gpus", "12", "--hardware", "h200"), "hint: --gpus 16"),
        ((KIMI, "--chart", "x.png"), "needs prefill times"),
        ((KIMI, "--hardware", "h200", "--chart", "x.gif"), "ending in .png or .svg"),
        ((KIMI, "--hardware", "h200", "--chart", "missing/x.png"), "there is no folder missing"),
        ((KIMI, "--hardware", "h200", "--chart", "."), "it is a folder"),
        ((KIMI, "--versus", str(VERSUS), "--chart", "x.gif"), "ending in .png or .svg"),
        (
            (KIMI, "--versus", str(VERSUS), "--hardware", "nope", "--mfu", "nan"),
            "--hardware, --mfu can't be combined with --versus",
        ),
        ((KIMI, "--versus", str(VERSUS), "--chart", "missing/x.svg"), "there is no folder missing"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    benchx: Command, arguments: tuple[str, ...], told: str
) -> None:
    found = benchx("kv", *arguments)
    assert found.code == 2, found.out
    assert told in " ".join(found.err.split())
    assert found.out == ""


def test_a_run_gives_measured_times_and_the_exponent(benchx: Command, tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(
        "schema: 1\nkind: model\narchitecture: kimi-linear-48b-a3b\nphase: prefill\n"
        "backends: [chunked+sdpa]\nfixed: {layers: 4, shrink: 16, dtype: float32}\n"
        "axes: {seqlens: [32, 64, 128]}\n"
        "measure: {launches: 1, cache: warm, min_samples: 1, max_samples: 2, max_time: 0.1s}\n"
    )
    ran = benchx("run", str(scenario), "--out", str(tmp_path / "out"))
    assert ran.code == 0, ran.err
    run = next((tmp_path / "out").iterdir())
    found = benchx("kv", KIMI, "--run", str(run))
    assert found.code == 0, found.err
    assert "(a part of it: 4 of 27 layers, widths divided by 16)" in found.out
    assert "a token leaves 384 B (float32)" in found.out  # kept as it was measured
    narrow = benchx("kv", KIMI, "--run", str(run), "--cache-dtype", "fp8").out
    assert "a token leaves 96 B (fp8)" in narrow
    assert "prefill time grows as tokens^" in found.out
    assert "from 32 to 128 (95 % interval" in found.out
    assert f"measured, {run.name}" in found.out
    assert "no prefill of kimi-k3" in " ".join(
        benchx("kv", "kimi-k3", "--run", str(run)).err.split()
    )


def test_patterns_of_a_run_are_compared_with_the_models_own(
    benchx: Command, tmp_path: Path
) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(
        "schema: 1\nkind: model\narchitecture: kimi-linear-48b-a3b\nphase: prefill\n"
        "backends: [chunked+sdpa]\nfixed: {layers: 4, shrink: 16, dtype: float32}\n"
        "axes: {pattern: [own, all_mla], seqlens: [32, 64]}\n"
        "measure: {launches: 1, cache: warm, min_samples: 1, max_samples: 2, max_time: 0.1s}\n"
    )
    assert benchx("run", str(scenario), "--out", str(tmp_path / "out")).code == 0
    run, picture = next((tmp_path / "out").iterdir()), tmp_path / "versus.png"
    found = benchx("kv", KIMI, "--versus", str(run), "--chart", str(picture))
    assert found.code == 0, found.err
    row = next(line for line in found.out.splitlines() if line.startswith("prefill"))
    assert "all_mla" in row
    assert picture.stat().st_size > 5_000
    data = json.loads(benchx("kv", KIMI, "--versus", str(run), "--json").out)
    # At 64 tokens the state outweighs the cache.
    assert data["against_own"][0]["bytes_ratio_at_longest"] < 1
    assert [(one["pattern"], one["lengths"]) for one in data["growth"]] == [
        ("own", [32, 64]), ("all_mla", [32, 64]),
    ]  # fmt: skip
    assert "time ~ tokens^" in found.out


def test_bandwidths_of_a_run_of_kv_tiers_replace_the_assumed_ones(
    benchx: Command, tmp_path: Path
) -> None:
    scenario = tmp_path / "tiers.yaml"
    scenario.write_text(
        "schema: 1\nkind: kernel\nop: kv_copy\nbackends: [blocks]\n"
        "fixed: {total_bytes: 1M}\naxes: {route: [memory, file_read], block_bytes: [4k, 1M]}\n"
        "measure: {launches: 1, min_samples: 1, max_samples: 2, max_time: 0.1s}\n"
    )
    assert benchx("run", str(scenario), "--out", str(tmp_path / "out")).code == 0
    run = next((tmp_path / "out").iterdir())
    found = benchx("kv", KIMI, "--tiers", str(run), "--json")
    tiers = json.loads(found.out)["tiers"]
    assert [row["tier"]["name"] for row in tiers] == ["memory", "file_read"]
    assert all(row["tier"]["source"] == f"measured, {run.name}" for row in tiers)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Made:
    """Runs that hold given rows of one sequence's prefill or of decode steps."""
    shared = {
        "op": KIMI, "kind": "model", "outcome": "ok", "layers": 4, "shrink": 1, "prefix": 0,
        "dtype": "bfloat16", "cache_dtype": "auto", "state_dtype": "float32", "pattern": "own",
        "kv_cache_bytes": 0, "kv_state_bytes": 0,
    }  # fmt: skip
    known: dict[Path, SimpleNamespace] = {}
    monkeypatch.setattr("benchx.runner.aggregate.load_run", known.__getitem__)
    monkeypatch.chdir(tmp_path)

    def make(name: str, rows: list[dict[str, Any]]) -> str:
        Path(name).mkdir(exist_ok=True)
        Path(name, "run.json").touch()
        known[Path(name)] = SimpleNamespace(rows=[shared | row for row in rows])
        return name

    return make


def prefill_of(seconds: Callable[[int], float], *lengths: int) -> list[dict[str, Any]]:
    return [
        {"phase": "prefill", "seqlens": str(n), "device_time_ms_p50": 1e3 * seconds(n)}
        for n in lengths
    ]


def test_prefills_of_several_runs_make_one_curve(benchx: Command, made: Made) -> None:
    def took(tokens: int) -> float:
        return 2e-5 * tokens

    one = made("one", prefill_of(took, 1024, 8192, 131072))
    two = made("two", prefill_of(took, 1024, 1048576))
    found = benchx("kv", KIMI, "--run", one, "--run", two, "--json")
    assert found.code == 0, found.err
    data = json.loads(found.out)
    assert [row["context"] for row in data["contexts"]] == [1024, 8192, 131072, 1048576]
    assert data["prefill_exponent"]["value"] == pytest.approx(1.0)
    assert data["prefill"]["source"] == "measured, one, two"


def test_a_measured_length_shows_what_was_measured_and_not_the_curve(
    benchx: Command, made: Made
) -> None:
    times = {1024: 0.007, 8192: 0.030, 32768: 0.100, 131072: 0.800}  # on no quadratic
    run = made("uneven", prefill_of(times.__getitem__, *times))
    found = benchx("kv", KIMI, "--run", run, "--context", "1k,8k,16k,32k,128k", "--json")
    rows = {row["context"]: row["prefill_s"] for row in json.loads(found.out)["contexts"]}
    assert {length: rows[length] for length in times} == times
    assert times[8192] < rows[16384] < times[32768]


def test_the_peak_of_a_prefill_is_weights_cache_states_and_what_a_call_works_with(
    benchx: Command, made: Made
) -> None:
    rows = prefill_of(lambda n: 1e-5 * n, 1024, 1048576)
    rows[1]["peak_memory_bytes"] = 20 * 2**30
    run = made("peak", rows)
    data = json.loads(benchx("kv", KIMI, "--run", run, "--json").out)
    arch = sliced(load_architecture(KIMI), 4)
    weights, states = 2 * parameters(arch).total, 2 * data["state_bytes"]
    expected = weights + 1048576 * 1152 + states + 20 * 2**30
    assert data["peak_memory_bytes"] == {"1048576": expected}
    found = benchx("kv", KIMI, "--run", run).out.splitlines()
    assert any("peak memory" in line for line in found)
    last = next(line for line in found if line.startswith("1M"))
    assert f"{expected / 2**30:.1f} GiB" in last


def test_all_mla_leaves_less_behind_until_the_state_is_paid_for(
    benchx: Command, made: Made
) -> None:
    state, lengths = 6_500_000, (1024, 2048, 4096)
    rows = [
        row | {"pattern": pattern, "kv_cache_bytes": n * a_token, "kv_state_bytes": constant}
        for pattern, a_token, constant in (("own", 1152, state), ("all_mla", 4608, 0))
        for n, row in zip(lengths, prefill_of(lambda n: 1e-5 * n, *lengths), strict=True)
    ]
    found = json.loads(benchx("kv", KIMI, "--versus", made("bytes", rows), "--json").out)
    crossings = found["against_own"][0]["bytes_crossovers"]
    assert crossings == [pytest.approx(state / (4608 - 1152), rel=0.05)]


def test_slices_and_the_whole_model_are_not_mixed(benchx: Command, made: Made) -> None:
    rows = prefill_of(lambda n: 1e-5 * n, 1024, 8192)
    mixed = made("mixed", [rows[0], rows[1] | {"layers": 0}])
    found = benchx("kv", KIMI, "--run", mixed)
    assert found.code == 2
    assert "holds 2 variants" in " ".join(found.err.split())


def test_a_constant_and_a_linear_decode_step_are_told_apart(benchx: Command, made: Made) -> None:
    steps = {
        "own": lambda n: 1.0 + 1e-5 * n,
        "all_kda": lambda n: 2.0,
        "all_mla": lambda n: 0.2 + 4e-5 * n,
    }  # fmt: skip
    rows = [
        {"phase": "decode", "batch": 1, "context": n, "pattern": name, "device_time_ms_p50": at(n)}
        for name, at in steps.items()
        for n in (1024, 16384, 262144, 1048576)
    ]
    found = benchx("kv", KIMI, "--versus", made("steps", rows))
    assert found.code == 0, found.err
    growth = found.out[found.out.index("time ~ tokens^") :].splitlines()
    cells = {line.split()[2]: line.split() for line in growth if line.startswith("decode")}
    assert cells["all_kda"][3:7] == ["1k", "to", "1M", "0.00"]
    assert cells["all_kda"][-3:] == ["100%", "0%", "0%"]
    assert cells["all_mla"][-3:] == ["0%", "100%", "0%"]


def test_a_run_that_adds_no_prefill_is_not_named_as_a_source(benchx: Command) -> None:
    found = benchx("kv", KIMI, "--run", str(PREFILL), "--run", str(TIERS))
    assert found.code == 2
    assert f"{TIERS}: no prefill of {KIMI}" in found.err
    assert f"hint: bandwidths are taken by --tiers {TIERS}" in found.err
