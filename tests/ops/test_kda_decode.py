"""KDA decode continues what a prefill left, in place."""

from __future__ import annotations

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.conformance import tensors
from benchx.ops.kda_decode import OPERATOR, DecodeInputs
from benchx.ops.linear_inputs import LinearInputs
from benchx.ops.linear_truth import packed_decode

CPU = torch.device("cpu")
FORMS = ("recurrent", "chunked")


def point(**values: Scalar) -> Params:
    defaults = {axis: spec.default for axis, spec in OPERATOR.axes.items()}
    small: dict[str, Scalar] = {"heads": 2, "batch": 3, "head_dim": 16, "value_dim": 24}
    return {k: v for k, v in defaults.items() if v is not None} | small | values


def inputs(**values: Scalar) -> DecodeInputs:
    return OPERATOR.make_inputs(point(**values), seed=3, device=CPU)


def one_step(given: DecodeInputs, at: int) -> DecodeInputs:
    """Token `at` of every sequence as a step of its own, on the same state."""
    fields = ("q", "k", "v", "g", "beta_logits")
    rows = {name: tensors(given)[name][:, at : at + 1].contiguous() for name in fields}
    kept = {name: getattr(given, name) for name in given.__dataclass_fields__ if name not in rows}
    return DecodeInputs(**rows, **kept)


def prefill(given: LinearInputs) -> dict[str, torch.Tensor]:
    return dict(backends_of("kda_prefill").get("chunked").prepare(given).run())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gate", ["bounded", "softplus", "log"])
def test_steps_one_by_one_are_a_prefill_of_the_same_tokens(form: str, gate: str) -> None:
    given = inputs(tokens=6, gate=gate, dtype="float32")
    expected = prefill(packed_decode(given.clone()))
    backend = backends_of("kda_decode").get(form)
    steps = [backend.prepare(one_step(given, at)).run()["o"] for at in range(6)]
    o = torch.cat(steps, 1).flatten(0, 1)
    torch.testing.assert_close(o, expected["o"], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(given.state, expected["final_state"], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("state_dtype", ["float32", "bfloat16"])
def test_the_state_output_is_the_state_that_was_given_and_reset_restores_it(
    form: str, state_dtype: str
) -> None:
    given = inputs(state_dtype=state_dtype)
    before = given.state.clone()
    call = backends_of("kda_decode").get(form).prepare(given)
    outputs = call.run()
    assert outputs["state"] is given.state
    assert not torch.equal(given.state, before)
    assert call.reset is not None
    call.reset()
    assert torch.equal(given.state, before)


def test_the_reference_leaves_the_state_alone() -> None:
    given = inputs()
    before = given.state.clone()
    OPERATOR.reference(given)
    assert torch.equal(given.state, before)


def test_a_step_costs_seven_flops_a_state_element_and_two_passes_over_the_state() -> None:
    found = OPERATOR.work(point(heads=1, batch=1, head_dim=128, value_dim=128))
    assert found.flops == 114_688
    assert found.min_bytes == 2 * 4 * 128**2 + 10 * 128 + 2
    assert found.flops / found.min_bytes == pytest.approx(0.87, abs=0.01)
    assert not found.leaves_kv
    assert found.tokens == 1


def test_inputs_are_the_same_for_equal_seeds() -> None:
    first, again = tensors(inputs()), tensors(inputs())
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_the_operator_is_registered_with_its_torch_forms() -> None:
    assert OPERATORS.get("kda_decode") is OPERATOR
    assert backends_of("kda_decode").names()[:2] == FORMS
