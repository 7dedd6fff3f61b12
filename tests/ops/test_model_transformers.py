"""transformers' classes on our weights: the same logits, or the reason why there is no class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchx.architectures import Architecture, load_architecture, shipped_architectures
from benchx.architectures.variants import patterned
from benchx.core.axes import Params, Scalar
from benchx.core.outcome import Outcome
from benchx.measure.device import probe_device
from benchx.ops.model_backend import model_backend, model_backend_names
from benchx.ops.model_inputs import ModelInputs
from benchx.ops.model_operator import ModelOperator
from benchx.ops.model_transformers import TransformersBackend
from benchx.ops.transformers_family import PACKAGE, class_problem, model_type

CPU = torch.device("cpu")
KIMI = "kimi-linear-48b-a3b"
SHRINK = {KIMI: 16, "kimi-k2": 32, "deepseek-v3": 64, "llama-3.1-70b": 64, "qwen3-235b-a22b": 32}
LAYERS = {"deepseek-v3": 5}
CLASSES = {
    KIMI: "kimi_linear", "kimi-k2": "deepseek_v3", "deepseek-v3": "deepseek_v3",
    "llama-3.1-70b": "llama", "qwen3-235b-a22b": "qwen3_moe",
}  # fmt: skip
ABSENT = PACKAGE.absent(probe_device())
needs_transformers = pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
# Their modules may warn of their own future; that is not for this test to judge.
theirs = pytest.mark.filterwarnings("default")


def point_of(name: str, phase: str, **change: Scalar) -> Params:
    axes = ModelOperator(name, phase).axes
    known = {axis: spec.default for axis, spec in axes.items() if spec.default is not None}
    layers = LAYERS.get(name, 4)
    usual: Params = {"phase": phase, "dtype": "float32", "shrink": SHRINK.get(name, 64)}
    return {**known, **usual, "layers": layers, **change}


def inputs_of(name: str, params: Params) -> ModelInputs:
    return ModelOperator(name, str(params["phase"])).make_inputs(params, seed=0, device=CPU)


def truth_of(name: str, inputs: ModelInputs) -> torch.Tensor:
    return ModelOperator(name, "prefill").reference(inputs).outputs["logits"]


def error_of(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


PREFILL: dict[str, Scalar] = {"seqlens": "2x40", "prefix": 24, "chunk": 64}
DECODE: dict[str, Scalar] = {"batch": 3, "context": 70}


@needs_transformers
@theirs
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", CLASSES)
def test_their_model_and_our_stack_compute_the_same(name: str, phase: str) -> None:
    params = point_of(name, phase, **(PREFILL if phase == "prefill" else DECODE))
    inputs = inputs_of(name, params)
    truth = truth_of(name, inputs)
    theirs_call = TransformersBackend(operator=name, phase=phase).prepare(inputs.clone())
    ours_call = model_backend(
        "sdpa" if name != KIMI else "chunked+sdpa", load_architecture(name), name, phase
    ).prepare(inputs.clone())
    found = theirs_call.run()["logits"]
    assert found.shape == truth.shape
    assert error_of(found, truth) < 1e-4
    assert error_of(ours_call.run()["logits"], truth) < 1e-4
    # A call grows the cache; the next one must start from the prefix again, reset or not.
    assert torch.equal(theirs_call.run()["logits"], found)
    assert theirs_call.reset is not None
    theirs_call.reset()
    assert torch.equal(theirs_call.run()["logits"], found)


@needs_transformers
@theirs
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_mla_in_every_layer_is_computed_by_the_same_class(phase: str) -> None:
    sizes = PREFILL if phase == "prefill" else DECODE
    inputs = inputs_of(KIMI, point_of(KIMI, phase, pattern="all_mla", **sizes))
    found = TransformersBackend(operator=KIMI, phase=phase).prepare(inputs).run()["logits"]
    assert error_of(found, truth_of(KIMI, inputs)) < 1e-4


@needs_transformers
@theirs
def test_a_prompt_without_a_prefix_starts_from_an_empty_cache() -> None:
    inputs = inputs_of(KIMI, point_of(KIMI, "prefill", seqlens="2x70", chunk=64))
    found = TransformersBackend(operator=KIMI, phase="prefill").prepare(inputs).run()["logits"]
    assert error_of(found, truth_of(KIMI, inputs)) < 1e-4


@needs_transformers
@theirs
def test_a_wrong_weight_of_ours_or_theirs_is_seen() -> None:
    inputs = inputs_of(KIMI, point_of(KIMI, "prefill", seqlens="2x40"))
    truth = truth_of(KIMI, inputs)
    inputs.stack.layers[1].mixer.out[0].neg_()
    found = TransformersBackend(operator=KIMI, phase="prefill").prepare(inputs).run()["logits"]
    assert error_of(found, truth) > 1e-3


@needs_transformers
@theirs
def test_their_modules_hold_our_tensors_and_no_copies() -> None:
    from benchx.ops.model_transformers import _model

    inputs = inputs_of(KIMI, point_of(KIMI, "prefill", seqlens=8))
    ours = {weight.untyped_storage().data_ptr() for weight in inputs.stack.weights()}
    model = _model(inputs)
    copied = [
        name for name, weight in model.named_parameters()
        if weight.untyped_storage().data_ptr() not in ours
    ]  # fmt: skip
    assert copied == ["model.layers.3.self_attn.kv_b_proj.weight"]


@needs_transformers
@theirs
def test_a_scenario_measures_both_and_judges_both_by_the_same_truth(tmp_path: Path) -> None:
    from benchx.cli.words import vocabulary
    from benchx.runner import Silent, run
    from benchx.runner.aggregate import load_run
    from benchx.scenario import load

    path = tmp_path / "both.yaml"
    path.write_text(
        f"schema: 1\nkind: model\narchitecture: {KIMI}\nphase: decode\n"
        "backends: [recurrent+absorbed, transformers]\n"
        "fixed: {layers: 4, shrink: 16, dtype: float32, batch: 2}\naxes: {context: [64]}\n"
        "measure: {launches: 1, min_samples: 2, max_samples: 3, max_time: 0.1s}\n"
    )
    done = run(load(path), vocabulary(), out_dir=tmp_path / "out", progress=Silent())
    rows: list[dict[str, Any]] = [dict(row) for row in load_run(done.path).rows]
    assert {row["backend"]: row["outcome"] for row in rows} == {
        "recurrent+absorbed": "ok", "transformers": "ok",
    }  # fmt: skip
    assert all(row["rms_ratio"] < 1e-4 for row in rows)


@pytest.mark.parametrize("name", shipped_architectures())
def test_every_shipped_model_names_its_class_or_what_no_class_has(name: str) -> None:
    arch = load_architecture(name)
    assert "transformers" in model_backend_names(arch, "prefill")
    problem = class_problem(arch)
    if name in CLASSES:
        assert problem is None
        assert model_type(arch) == CLASSES[name]
    else:
        assert name == "kimi-k3"
        assert problem is not None
        assert "attention residuals, SiTU, experts at a latent width" in problem


def _changed(part: str, **change: Scalar) -> Architecture:
    arch = load_architecture(KIMI)
    return arch.model_copy(update={part: getattr(arch, part).model_copy(update=change)})


@pytest.mark.parametrize(
    ("arch", "told"),
    [
        (_changed("kda", gate="bounded"), "KDA with a bounded gate"),
        (_changed("kda", output_gate="full_rank"), "KDA's full-rank gate"),
        (_changed("kda", value_dim=64), "unequal keys and values"),
        (_changed("mla", rope=True), "KDA beside rotated MLA"),
        (_changed("mla", output_gate=True), "MLA with an output gate"),
        (_changed("moe", router="softmax"), "this router"),
        (_changed("moe", shared=0), "this router"),
        (patterned(load_architecture(KIMI), "all_kda"), "no attention layer counts tokens in"),
    ],
)
def test_what_no_class_has_is_named(arch: Architecture, told: str) -> None:
    assert told in str(class_problem(arch))


def test_a_pattern_without_kda_keeps_the_class_that_does_not_rotate() -> None:
    assert model_type(patterned(load_architecture(KIMI), "all_mla")) == "kimi_linear"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cache_dtype": "float8_e4m3"}, "caches in the dtype of the weights"),
        ({"state_dtype": "bfloat16"}, "KDA's state in float32"),
    ],
)
def test_dtypes_that_it_can_not_tell_apart_are_unsupported(
    change: dict[str, Scalar], told: str
) -> None:
    backend = TransformersBackend(operator=KIMI, phase="prefill")
    refusal = backend.unavailable(point_of(KIMI, "prefill", seqlens=8, **change), probe_device())
    assert refusal is not None
    assert refusal.outcome is Outcome.UNSUPPORTED
    assert told in refusal.reason


def test_without_the_package_the_row_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchx.ops.packages.find_spec", lambda _name: None)
    backend = TransformersBackend(operator=KIMI, phase="decode")
    device = replace(probe_device())
    refusal = backend.unavailable(point_of(KIMI, "decode", batch=1, context=8), device)
    assert refusal is not None
    assert refusal.outcome is Outcome.SKIPPED
    assert str(refusal) == (
        "transformers is not installed; install: pip install transformers==5.24.0"
    )
