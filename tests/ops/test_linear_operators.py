"""What the prefill operators of the linear-attention family promise, backends aside."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.core.record import Work
from benchx.ops import linear_truth
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.conformance import tensors
from benchx.ops.linear_family import LinearPrefill
from benchx.ops.linear_inputs import LinearInputs

CPU = torch.device("cpu")
PREFILL = ("linear_attention", "delta_rule", "gated_delta_rule", "kda_prefill")
FORMS = ("recurrent", "chunked")


def operator(name: str) -> LinearPrefill:
    found = OPERATORS.get(name)
    assert isinstance(found, LinearPrefill)
    return found


def point(name: str, **values: Scalar) -> Params:
    defaults = {axis: spec.default for axis, spec in operator(name).axes.items()}
    small: dict[str, Scalar] = {"heads": 2, "seqlens": "70", "head_dim": 16, "value_dim": 24}
    return {k: v for k, v in defaults.items() if v is not None} | small | values


def inputs(name: str, *, seed: int = 1, **values: Scalar) -> LinearInputs:
    return operator(name).make_inputs(point(name, **values), seed=seed, device=CPU)


def run(name: str, form: str, given: LinearInputs) -> dict[str, torch.Tensor]:
    return dict(backends_of(name).get(form).prepare(given).run())


def tokens(given: LinearInputs, begin: int, end: int, state: torch.Tensor | None) -> LinearInputs:
    """Tokens `begin:end` of a single sequence, starting from `state`."""
    rows = {
        name: tensor[begin:end]
        for name, tensor in tensors(given).items()
        if name in ("q", "k", "v", "g", "beta_logits")
    }
    size = end - begin
    ends = torch.tensor([0, size])
    return replace(given, **rows, lengths=(size,), cu_seqlens=ends, initial_state=state)


# Inputs.


@pytest.mark.parametrize("name", PREFILL)
def test_equal_seeds_give_equal_inputs_and_other_seeds_others(name: str) -> None:
    first, again, other = (tensors(inputs(name, seed=s)) for s in (1, 1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["q"], other["q"])


@pytest.mark.parametrize("gate", ["bounded", "softplus", "log"])
def test_log_decays_lie_in_the_range_of_a_freshly_made_model(gate: str) -> None:
    terms = linear_truth.terms_of(inputs("kda_prefill", gate=gate, seqlens=500), torch.float64)
    assert terms.log_decay is not None
    assert terms.log_decay.max() < 0
    assert terms.log_decay.min() > (-5.0001 if gate == "bounded" else -30)
    assert -5 < terms.log_decay.mean() < -0.05


def test_keys_are_normalised_outside_when_the_kernel_does_not() -> None:
    norms = inputs("kda_prefill", qk_l2norm=False).k.float().norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones_like(norms), atol=0.01, rtol=0)


@pytest.mark.parametrize("name", PREFILL)
def test_inputs_have_what_the_operator_needs_and_nothing_else(name: str) -> None:
    found = set(tensors(inputs(name)))
    expected = {"q", "k", "v", "cu_seqlens", "initial_state"}
    if operator(name).delta:
        expected.add("beta_logits")
    if operator(name).gates[0] != "none":
        expected.add("g")
    if operator(name).gates[0] == "bounded":
        expected |= {"a_log", "dt_bias"}
    assert found == expected


def test_a_clone_shares_no_memory_and_counts_the_same_bytes() -> None:
    original = inputs("kda_prefill")
    copy = original.clone()
    assert copy.nbytes() == original.nbytes() == sum(t.nbytes for t in tensors(original).values())
    assert copy.lengths == original.lengths
    for name, tensor in tensors(copy).items():
        assert tensor.data_ptr() != tensors(original)[name].data_ptr(), name


# Truth.


@pytest.mark.parametrize("name", PREFILL)
@pytest.mark.parametrize("form", FORMS)
def test_a_token_sees_no_later_token(name: str, form: str) -> None:
    given = inputs(name)
    changed = given.clone()
    for field in ("q", "k", "v", "beta_logits"):
        if field in tensors(changed):
            tensors(changed)[field][40:] = 3.0
    before, after = run(name, form, given)["o"], run(name, form, changed)["o"]
    torch.testing.assert_close(after[:40], before[:40], atol=1e-5, rtol=0.02)
    assert not torch.equal(after[40:], before[40:])


@pytest.mark.parametrize("name", PREFILL)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [1, 37, 64, 69])
def test_two_halves_with_the_state_handed_over_are_one_prefill(
    name: str, form: str, cut: int
) -> None:
    given = inputs(name, dtype="float32")
    whole = run(name, form, given)
    first = run(name, form, tokens(given, 0, cut, given.initial_state))
    second = run(name, form, tokens(given, cut, 70, first["final_state"]))
    torch.testing.assert_close(torch.cat((first["o"], second["o"])), whole["o"], atol=1e-4, rtol=0)
    torch.testing.assert_close(second["final_state"], whole["final_state"], atol=1e-4, rtol=0)


def test_short_sequences_are_judged_by_the_recurrence_and_long_ones_by_chunks() -> None:
    kda = operator("kda_prefill")
    assert kda.reference(inputs("kda_prefill", seqlens="256")).method == "fp64 recurrence"
    assert kda.reference(inputs("kda_prefill", seqlens="257+1")).method == "fp64 chunked"


def test_a_large_problem_is_judged_on_some_heads_named_in_the_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = inputs("kda_prefill", heads=7)
    full = operator("kda_prefill").reference(given)
    monkeypatch.setattr(linear_truth, "REFERENCE_ELEMENTS", {"cpu": 1})
    sample = operator("kda_prefill").reference(given)
    assert sample.heads == (0, 3, 6)
    assert sample.method == "fp64 recurrence, 3 of 7 heads (0+3+6)"
    for name, truth in sample.outputs.items():
        picked = full.outputs[name].index_select(sample.head_dims[name], torch.tensor([0, 3, 6]))
        torch.testing.assert_close(truth, picked, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", PREFILL)
def test_the_reference_leaves_inputs_alone(name: str) -> None:
    given = inputs(name)
    before = tensors(given.clone())
    operator(name).reference(given)
    assert all(torch.equal(tensor, before[key]) for key, tensor in tensors(given).items())


# Costs.


def work(name: str, **values: Scalar) -> Work:
    return operator(name).work(point(name, head_dim=128, value_dim=128, **values))


def test_kda_flops_are_those_of_equation_13() -> None:
    assert work("kda_prefill", heads=96, seqlens=8192).flops == pytest.approx(99.9e9, rel=1e-3)


def test_kda_minimum_bytes_are_those_of_the_fused_kernel() -> None:
    found = work("kda_prefill", heads=96, seqlens=8192, state_dtype="bfloat16").min_bytes
    assert found == pytest.approx(1.014e9, rel=1e-3)
    assert found / 4.8e12 * 1e3 == pytest.approx(0.211, abs=1e-3)


def test_a_log_decay_costs_twice_the_bytes_of_gate_logits() -> None:
    shape: dict[str, Scalar] = {"heads": 2, "seqlens": 100}
    difference = (
        work("kda_prefill", gate="log", **shape).min_bytes
        - work("kda_prefill", gate="bounded", **shape).min_bytes
    )
    assert difference == 100 * 2 * 128 * 2


def test_state_bytes_are_what_the_prefill_leaves_behind() -> None:
    found = work("kda_prefill", heads=96, seqlens="3x1024")
    assert found.kv_state_bytes == 3 * 6_291_456  # 96 x 128 x 128 x 4 a sequence and layer
    assert found.leaves_kv
    assert found.tokens == 3072
    assert found.kv_cache_bytes == 0


def test_without_an_initial_state_the_state_is_only_written() -> None:
    both = work("kda_prefill", heads=4, seqlens=64)
    written = work("kda_prefill", heads=4, seqlens=64, initial_state=False)
    assert both.min_bytes - written.min_bytes == both.kv_state_bytes


def test_ancestors_cost_less_the_older_they_are() -> None:
    shape: dict[str, Scalar] = {"heads": 4, "seqlens": 1024}
    costs = [work(name, **shape) for name in PREFILL]
    assert [c.flops for c in costs] == sorted(c.flops for c in costs)
    assert [c.min_bytes for c in costs] == sorted(c.min_bytes for c in costs)


# Words.


def test_a_batch_without_tokens_and_a_bound_that_is_none_are_problems() -> None:
    kda = operator("kda_prefill")
    assert kda.problem(point("kda_prefill")) is None
    assert "no token" in str(kda.problem(point("kda_prefill", seqlens="0+0")))
    assert "lower_bound < 0" in str(kda.problem(point("kda_prefill", lower_bound=0.0)))
    assert kda.problem(point("kda_prefill", gate="log", lower_bound=0.0)) is None


def test_a_torch_backend_says_what_ran() -> None:
    found = backends_of("kda_prefill").get("chunked").provenance()
    assert found["package"] == "torch"
    assert found["version"] == torch.__version__
    assert len(found["sha256"]) == 64


def test_the_words_of_operators_import_no_torch() -> None:
    code = (
        "import sys; from benchx.ops.vocabulary import kernel_words; "
        "words = kernel_words(); print('torch' in sys.modules, *words['kda_prefill'].backends[:2])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "recurrent", "chunked"]
