"""The judge: right passes, every kind of wrong gets a reason, and garbage never a traceback."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.call import OutputSpec, Reference
from benchx.core.errors import RunFailed
from benchx.measure import correctness
from benchx.measure.correctness import judge, poison, unsound
from benchx.measure.device import probe_device

SHAPE = (40, 3, 8)
SPECS = {"o": OutputSpec(SHAPE, torch.bfloat16)}
BOUND = 0.006


def _truth(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(SHAPE, generator=generator, dtype=torch.float64)


def _reference(outputs: Mapping[str, torch.Tensor] | None = None, **fields: object) -> Reference:
    return Reference(outputs=outputs or {"o": _truth()}, method="fp64 test", **fields)


def test_a_correctly_rounded_output_passes_with_its_ratio() -> None:
    verdict = judge({"o": _truth().bfloat16()}, SPECS, _reference(), BOUND)
    assert verdict.reason is None
    assert 0 < verdict.check.rms_ratio["o"] < 0.003
    assert verdict.check.method == "fp64 test"


def test_an_output_above_the_bound_is_wrong_and_carries_its_ratio() -> None:
    verdict = judge({"o": (_truth() * 1.02).bfloat16()}, SPECS, _reference(), BOUND)
    assert "above 0.006" in verdict.reason
    assert verdict.check.rms_ratio["o"] == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("garbage", [None, 3, "o", [torch.zeros(SHAPE)], torch.zeros(SHAPE)])
def test_outputs_that_are_no_mapping_get_a_reason(garbage: object) -> None:
    verdict = judge(garbage, SPECS, _reference(), BOUND)
    assert verdict.check is None
    assert "expected a mapping with o" in verdict.reason


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ({}, "o: missing; returned nothing"),
        ({"out": torch.zeros(SHAPE)}, "o: missing; returned out"),
        ({"o": None}, "o: None, expected a tensor"),
        ({"o": [1.0]}, "o: a list, expected a tensor"),
        (
            {"o": torch.zeros(40, 3, 4, dtype=torch.bfloat16)},
            r"o: shape \(40, 3, 4\), expected \(40, 3, 8\)",
        ),
        ({"o": torch.zeros(SHAPE)}, "o: dtype float32, expected bfloat16"),
        (
            {"o": torch.zeros(SHAPE, dtype=torch.bfloat16, device="meta")},
            "o: a tensor without plain memory",
        ),
    ],
)
def test_a_wrong_form_is_named(outputs: Mapping[str, object], reason: str) -> None:
    verdict = judge(outputs, SPECS, _reference(), BOUND)
    assert verdict.check is None
    assert re.match(reason, verdict.reason)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_no_number_is_found(value: float) -> None:
    output = _truth().bfloat16()
    output[-1, -1, -1] = value
    verdict = judge({"o": output}, SPECS, _reference(), BOUND)
    assert verdict.reason == "o: 1 of 960 values are NaN or infinite"
    assert verdict.check is None


def test_the_ratio_of_a_good_output_is_kept_when_another_is_bad() -> None:
    specs = SPECS | {"final_state": OutputSpec((2, 4), torch.float32)}
    outputs = {"o": _truth().bfloat16(), "final_state": torch.full((2, 4), math.nan)}
    state = torch.ones(2, 4, dtype=torch.float64)
    verdict = judge(outputs, specs, _reference({"o": _truth(), "final_state": state}), BOUND)
    assert verdict.reason.startswith("final_state:")
    assert set(verdict.check.rms_ratio) == {"o"}


def test_one_wrong_row_among_many_is_found_though_the_overall_ratio_passes() -> None:
    truth = torch.randn(100_000, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    output = truth.bfloat16()
    output[-1] = -output[-1]
    verdict = judge(
        {"o": output}, {"o": OutputSpec((100_000, 4), torch.bfloat16)},
        _reference({"o": truth}), 0.02,
    )  # fmt: skip
    assert verdict.check.rms_ratio["o"] <= 0.02
    assert "row 99999 is off by" in verdict.reason


def test_a_row_of_tiny_values_may_be_off_by_the_rounding_of_the_others() -> None:
    truth = _truth()
    truth[7] *= 1e-6
    output = truth.bfloat16()
    output[7] += 0.001
    assert judge({"o": output}, SPECS, _reference({"o": truth}), BOUND).reason is None


def test_where_the_reference_is_zero_the_bound_is_absolute() -> None:
    zero = _reference({"o": torch.zeros(SHAPE, dtype=torch.float64)})
    near, far = (torch.full(SHAPE, v, dtype=torch.bfloat16) for v in (0.001, 0.1))
    assert judge({"o": near}, SPECS, zero, BOUND).reason is None
    assert "above" in judge({"o": far}, SPECS, zero, BOUND).reason


def test_an_output_without_elements_passes() -> None:
    specs = {"o": OutputSpec((0, 3, 8), torch.bfloat16)}
    truth = torch.zeros(0, 3, 8, dtype=torch.float64)
    verdict = judge({"o": truth.bfloat16()}, specs, _reference({"o": truth}), BOUND)
    assert verdict.reason is None
    assert verdict.check.rms_ratio == {"o": 0.0}


def test_a_reference_of_some_heads_judges_those_heads() -> None:
    truth = _truth()
    some = _reference({"o": truth[:, [0, 2]]}, heads=(0, 2), head_dims={"o": 1})
    output = truth.bfloat16()
    output[:, 1] = 5.0
    assert judge({"o": output}, SPECS, some, BOUND).reason is None
    output[:, 2] = 5.0
    assert "above" in judge({"o": output}, SPECS, some, BOUND).reason


def test_nan_in_a_head_outside_the_reference_is_still_found() -> None:
    truth = _truth()
    some = _reference({"o": truth[:, [0, 2]]}, heads=(0, 2), head_dims={"o": 1})
    output = truth.bfloat16()
    output[0, 1, 0] = math.nan
    assert "NaN" in judge({"o": output}, SPECS, some, BOUND).reason


def test_a_head_of_zeros_outside_the_reference_is_found() -> None:
    reference = _reference({"o": _truth()[:, :1]}, heads=(0,), head_dims={"o": 1})
    output = _truth().bfloat16()
    output[:, 2] = 0
    verdict = judge({"o": output}, SPECS, reference, BOUND)
    assert verdict.reason == "o: nothing but zeros in heads 2"
    empty = _reference({"o": 0 * _truth()[:, :1]}, heads=(0,), head_dims={"o": 1})
    output[:, 0] = 0
    assert judge({"o": output}, SPECS, empty, BOUND).reason is None


@pytest.mark.parametrize("broken", ["nan", "missing", "shape"])
def test_a_broken_reference_is_our_error_and_raises(broken: str) -> None:
    truth = _truth()
    truth[0, 0, 0] = math.nan
    references = {"nan": {"o": truth}, "missing": {"x": _truth()}, "shape": {"o": _truth()[:5]}}
    with pytest.raises(RunFailed, match="reference"):
        judge({"o": _truth().bfloat16()}, SPECS, _reference(references[broken]), BOUND)


def test_comparing_in_chunks_gives_the_same_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    output = {"o": (_truth() * 1.001).bfloat16()}
    whole = judge(output, SPECS, _reference(), BOUND).check.rms_ratio["o"]
    monkeypatch.setattr(correctness, "_CHUNK_ELEMENTS", 50)
    parts = judge(output, SPECS, _reference(), BOUND).check.rms_ratio["o"]
    assert parts == pytest.approx(whole, rel=1e-12)


def test_a_view_is_judged_by_its_values() -> None:
    stored = _truth().bfloat16().transpose(0, 2).contiguous()
    assert judge({"o": stored.transpose(0, 2)}, SPECS, _reference(), BOUND).reason is None


@given(st.floats(min_value=-6, max_value=6))
def test_the_ratio_does_not_depend_on_the_scale_of_the_values(exponent: float) -> None:
    factor = 2.0 ** round(exponent)  # exact in bfloat16
    output = (_truth() * 1.002).bfloat16()
    base = judge({"o": output}, SPECS, _reference(), BOUND).check.rms_ratio["o"]
    scaled = _reference({"o": _truth() * factor})
    assert judge({"o": output * factor}, SPECS, scaled, BOUND).check.rms_ratio[
        "o"
    ] == pytest.approx(base, rel=1e-9)


def test_poison_takes_every_kind_of_output() -> None:
    dtypes = (torch.bfloat16, torch.float32, torch.int32, torch.float8_e4m3fn)
    poison({str(d): OutputSpec((4, 4), d) for d in dtypes}, probe_device())


def test_one_head_of_one_row_is_found_among_many_heads() -> None:
    """Of a row of 128 heads it is 9 %, less than twenty times the bound."""
    drawn = torch.Generator().manual_seed(2)
    truth = torch.randn(64, 128, 16, dtype=torch.float64, generator=drawn)
    output = truth.bfloat16()
    output[3, 5] = 0
    specs = {"o": OutputSpec(tuple(truth.shape), torch.bfloat16)}
    verdict = judge({"o": output}, specs, _reference({"o": truth}, head_dims={"o": 1}), 0.02)
    assert verdict.check.rms_ratio["o"] <= 0.02
    assert "[3, 5] is off by 1 of its own rms" in verdict.reason


def test_a_vector_outside_the_first_heads_is_named_by_its_head_among_all() -> None:
    truth = torch.randn(400, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    output = truth.bfloat16()
    output[17, 7] *= 0.5
    reference = _reference({"o": truth[:, [2, 7]]}, heads=(2, 7), head_dims={"o": 1})
    specs = {"o": OutputSpec(tuple(truth.shape), torch.bfloat16)}
    verdict = judge({"o": output}, specs, reference, 0.03)
    assert "[17, 7] is off by 0.5 of its own rms" in verdict.reason


def test_a_small_head_is_judged_by_its_own_scale() -> None:
    truth = torch.randn(400, 2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    truth[:, 1] *= 1e-3
    output = truth.bfloat16()
    output[:, 1] = 0
    specs = {"o": OutputSpec(tuple(truth.shape), torch.bfloat16)}
    reference = _reference({"o": truth}, head_dims={"o": 1})
    assert ", 1] is off by 1 of its own rms" in judge({"o": output}, specs, reference, BOUND).reason


def test_a_vector_that_cancels_to_little_may_be_off_by_the_rounding_of_its_terms() -> None:
    truth = _truth()
    truth[7, 1] *= 0.02
    output = truth.bfloat16()
    output[7, 1] += 0.01  # half of itself, and less than twice the bound on its head
    verdict = judge({"o": output}, SPECS, _reference({"o": truth}, head_dims={"o": 1}), BOUND)
    assert verdict.reason is None


def test_what_has_no_truth_must_have_form_and_numbers() -> None:
    good = _truth().bfloat16()
    assert unsound({"o": good}, SPECS, {}) is None
    assert unsound({"o": good}, SPECS, {"state": torch.zeros(0)}) is None
    assert unsound(None, SPECS, {}) == "returned None, expected a mapping with o"
    assert unsound({"o": good[:3]}, SPECS, {}) == "o: shape (3, 3, 8), expected (40, 3, 8)"
    left = {"state": torch.tensor([0.0, math.inf])}
    assert unsound({"o": good}, SPECS, left) == "state: 1 of 2 values are NaN or infinite"
    fp8 = torch.tensor([1.0, math.nan]).to(torch.float8_e4m3fn)
    assert unsound({"o": good}, SPECS, {"rows": fp8}) == "rows: 1 of 2 values are NaN or infinite"
