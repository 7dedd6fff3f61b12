"""Model points measured in this process on the CPU, and a scenario from YAML to a table row."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchx.cli.words import vocabulary
from benchx.core.errors import ScenarioError
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.measure.device import probe_device
from benchx.ops.model_operator import PROBE_TOKENS, ModelOperator
from benchx.runner.events import Event, Recorded
from benchx.runner.model_level import ModelLevel
from benchx.runner.session import Session
from benchx.runner.spec import Group, LaunchSpec
from benchx.scenario import Scenario, expand, load
from benchx_kernels.reference_linear import BlockOrder, Result, Terms

Write = Callable[..., Scenario]
KIMI = "kimi-linear-48b-a3b"
SETTINGS: dict[str, Any] = {
    "cache": "warm", "timer": "auto", "order": "interleaved", "target_error": 0.5,
    "min_samples": 1, "max_samples": 2, "max_time_s": 0.05, "setup_time_limit_s": 60.0, "seed": 0,
    "max_rms_ratio": None,
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": 64, "vocab_size": 128, "num_hidden_layers": 4,
    "model_max_length": 4096, "intermediate_size": 96, "num_attention_heads": 2,
    "q_lora_rank": None, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "mla_use_nope": True, "num_experts": 8, "num_experts_per_token": 2,
    "num_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
    "linear_attn_config": {
        "num_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4, "full_attn_layers": [4],
        "kda_layers": [1, 2, 3],
    },
}  # fmt: skip
SMALL = {"layers": 4, "shrink": 16, "dtype": "float32"}
TEXT = """\
schema: 1
kind: model
architecture: {architecture}
phase: {phase}
backends: [{backends}]
fixed: {{layers: 4, shrink: 16, dtype: float32, {fixed}}}
axes: {{{axes}}}
"""


class Collector:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, event: Event) -> None:
        self.events.append(event)


def measured(phase: str, *backends: str, **params: object) -> dict[str, LaunchRecord]:
    defaults = {name: spec.default for name, spec in ModelOperator(KIMI, phase).axes.items()}
    known = {name: value for name, value in defaults.items() if value is not None}
    wanted: Any = known | SMALL | params | {"phase": phase}
    points = tuple(
        Point(kind="model", subject=KIMI, backend=name, params=wanted) for name in backends
    )
    group = Group(points)
    spec = LaunchSpec(run_id="r", launch=0, worker=0, groups=(group,), settings={0: SETTINGS})
    channel = Collector()
    session = Session(spec=spec, device=probe_device(), ceilings={}, channel=channel)
    session.drift.look = lambda **_: None  # type: ignore[method-assign]
    ModelLevel().measure(group, session)
    names = {point.point_id: point.backend for point in points}
    records = [event.record for event in channel.events if isinstance(event, Recorded)]
    return {names[record.point_id]: record for record in records}


def test_a_prefill_has_kv_throughput_of_cache_and_state() -> None:
    record = measured("prefill", "chunked+sdpa", seqlens="2x64", chunk=32)["chunked+sdpa"]
    assert record.outcome is Outcome.OK, record.reason
    values, work = record.values, record.work
    assert work is not None
    seconds = values["device_time_ms"] / 1e3
    left = work.kv_cache_bytes + work.kv_state_bytes
    assert values["kv_throughput_gb_s"] == pytest.approx(left / seconds / 1e9)
    assert values["kv_throughput_gbit_s"] == pytest.approx(8 * left / seconds / 1e9)
    assert values["token_throughput_tok_s"] == pytest.approx(128 / seconds)


def test_backends_of_a_point_share_the_stack_and_are_judged_by_the_same_truth() -> None:
    found = measured("prefill", "chunked+sdpa", "recurrent+expanded", seqlens=64)
    assert {record.outcome for record in found.values()} == {Outcome.OK}
    checks = [record.check for record in found.values()]
    assert all(check is not None and check.worst < 1e-4 for check in checks)
    assert {check.method for check in checks if check} == {"fp64 stack, 1 x 64 tokens behind 0"}


@pytest.fixture
def breaks_beyond(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], None]:
    """Makes the chunked form of KDA leave no numbers in calls of more tokens than given."""
    from benchx_kernels import reference_linear

    right = reference_linear.chunked

    def broken(tokens: int, output: str) -> None:
        def chunked(terms: Terms, order: BlockOrder, state: torch.Tensor | None) -> Result:
            result = right(terms, order, state)
            if result.o.shape[0] > tokens:
                getattr(result, output).fill_(float("nan"))
            return result

        monkeypatch.setattr(reference_linear, "chunked", chunked)

    return broken


@pytest.mark.parametrize(
    ("output", "told"),
    [("o", "the timed call: logits: "), ("final_state", "state of layer 0: ")],
)
def test_a_timed_call_without_numbers_is_wrong_though_its_probe_is_right(
    breaks_beyond: Callable[[int, str], None], output: str, told: str
) -> None:
    breaks_beyond(2 * PROBE_TOKENS, output)
    fine = measured("prefill", "chunked+sdpa", seqlens=256)["chunked+sdpa"]
    assert fine.outcome is Outcome.OK, fine.reason
    record = measured("prefill", "chunked+sdpa", seqlens=512)["chunked+sdpa"]
    assert record.outcome is Outcome.WRONG
    assert told in str(record.reason)
    assert not record.values


def test_a_prefill_that_loses_its_state_between_chunks_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within a pass, where a probe of less than a chunk would see nothing of it.

    By the bound of a stack whose experts can't change: in fp32 none does.
    """
    from benchx_kernels import reference_linear

    right = reference_linear.chunked

    def forgetful(terms: Terms, order: BlockOrder, state: torch.Tensor) -> Result:
        if terms.q.dtype is torch.float64:  # the truth
            return right(terms, order, state)
        whole, rest = divmod(terms.q.shape[0], 64)
        pieces = (64,) * whole + (rest,) * (rest > 0)
        result = right(terms, reference_linear.block_order(pieces, 64, state.device), None)
        return replace(result, final_state=result.final_state[-1:])

    monkeypatch.setattr(reference_linear, "chunked", forgetful)
    monkeypatch.setitem(SETTINGS, "max_rms_ratio", 0.05)
    record = measured("prefill", "chunked+sdpa", seqlens=512)["chunked+sdpa"]
    assert record.outcome is Outcome.WRONG
    assert "logits: rms ratio" in str(record.reason)


def test_a_probe_that_ran_other_code_than_what_is_timed_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchx.ops.model_backend import StackBackend

    right, told = StackBackend.provenance, iter(("fused", "portable"))
    monkeypatch.setattr(
        StackBackend, "provenance", lambda self: {**right(self), "dispatched": next(told)}
    )
    record = measured("prefill", "chunked+sdpa", seqlens=64)["chunked+sdpa"]
    assert record.outcome is Outcome.OK, record.reason
    assert record.timing is not None
    assert "probe_dispatched_otherwise" in record.timing.notes
    assert record.provenance["dispatched"] == "fused"
    assert record.provenance["probe"]["dispatched"] == "portable"


def test_a_slice_says_so_in_its_notes() -> None:
    record = measured("decode", "recurrent+absorbed", batch=2, context=65, pattern="all_mla")[
        "recurrent+absorbed"
    ]
    assert record.outcome is Outcome.OK, record.reason
    assert record.timing is not None
    assert set(record.timing.notes) >= {
        "all_mla", "slice_4_of_27_layers", "widths_divided_by_16",
    }  # fmt: skip


def test_a_batch_that_does_not_fit_is_oom_with_the_bytes_asked_for() -> None:
    record = measured("decode", "recurrent+absorbed", batch=2**22, context=2**20)[
        "recurrent+absorbed"
    ]
    assert record.outcome is Outcome.OOM
    assert record.reason is not None
    assert record.reason.startswith("asked for ")
    assert "TiB" in record.reason


@pytest.fixture
def scenario(tmp_path: Path) -> Write:
    def write(**change: str) -> Scenario:
        words = {
            "architecture": KIMI, "phase": "prefill", "backends": "chunked+sdpa",
            "fixed": "chunk: 64", "axes": "seqlens: [64, 128]",
        } | change  # fmt: skip
        path = tmp_path / "mine.yaml"
        path.write_text(TEXT.format(**words))
        return load(path)

    return write


def test_points_of_a_scenario_carry_phase_and_every_axis(scenario: Write) -> None:
    points = expand(scenario(), vocabulary())
    assert [point.params["seqlens"] for point in points] == ["64", "128"]
    assert {(point.kind, point.subject) for point in points} == {("model", KIMI)}
    assert {point.params["phase"] for point in points} == {"prefill"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"architecture": "kimi-k4"}, "mine.yaml:3: architecture: unknown architecture"),
        ({"architecture": "nowhere/config.json"}, "No such file"),
        ({"phase": "training"}, "mine.yaml:4: phase: got 'training'"),
        ({"backends": "chunkd+sdpa"}, "did you mean 'chunked+sdpa'?"),
        ({"axes": "seqlen: [64]"}, "did you mean 'seqlens'?"),
        ({"axes": "seqlens: [2M]"}, "at most 1048576"),
        ({"axes": "prefix: [0]"}, "axes.seqlens: missing"),
    ],
)
def test_a_model_scenario_that_can_not_be_is_refused(
    scenario: Write, change: dict[str, str], told: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        expand(scenario(**change), vocabulary())
    assert told in str(caught.value)


def test_a_scenario_round_trips(scenario: Write) -> None:
    loaded = scenario()
    assert Scenario.from_json(loaded.to_json(), source=loaded.source).parts == loaded.parts


def test_a_model_read_from_a_file_is_measured_reported_and_sized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a config.json to a report: its path is the name, and makes no folder of a figure."""
    from benchx.cli.kv_measured import measured_prefill
    from benchx.reporting import report
    from benchx.runner import Silent, run

    model = tmp_path / "My-Model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema: 1\nkind: model\narchitecture: My-Model/config.json\nphase: prefill\n"
        "backends: [chunked+sdpa, recurrent+expanded]\nfixed: {dtype: float32}\n"
        "axes: {seqlens: [32, 64]}\n"
        "measure: {launches: 1, cache: warm, min_samples: 1, max_samples: 2, max_time: 0.1s}\n"
    )
    monkeypatch.chdir(tmp_path)
    done = run(load(path), vocabulary(), out_dir=tmp_path / "out", progress=Silent())
    written = report([done.path], tmp_path / "report")
    names = [file.name for file in written.files]
    assert "My-Model-config-json-prefill-device-time.png" in names
    assert len(set(names)) == len(names)
    measured = measured_prefill([done.path], "My-Model/config.json")
    assert sorted(measured.seconds) == [32, 64]
    assert measured.arch.layers == 4
