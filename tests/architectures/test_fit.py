"""Curves through measured prefills."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.architectures import load_architecture
from benchx.architectures.fit import fitted_exponent, fitted_prefill
from benchx.architectures.flops import prefill_flops
from benchx.architectures.kv_report import bounded_prefill

LENGTHS = [2**n for n in range(10, 21, 2)]


@given(power=st.floats(0.5, 2.5), factor=st.floats(1e-9, 1e-3))
def test_a_power_law_is_found_with_no_width(power: float, factor: float) -> None:
    found = fitted_exponent({tokens: factor * tokens**power for tokens in LENGTHS})
    assert found is not None
    assert found.value == pytest.approx(power)
    assert found.low == pytest.approx(power, abs=1e-6)
    assert found.high == pytest.approx(power, abs=1e-6)


def test_a_bend_widens_the_interval_around_the_slope() -> None:
    found = fitted_exponent({tokens: tokens + 1e-5 * tokens**2 for tokens in LENGTHS})
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 1 < found.low < found.value < found.high < 2


def test_two_lengths_have_no_interval_and_one_no_exponent() -> None:
    two = fitted_exponent({1: 1.0, 2: 2.0})
    assert two is not None
    assert two.low is None
    assert fitted_exponent({1: 1.0}) is None


@given(
    fixed=st.floats(0, 1e-2), linear=st.floats(1e-6, 1e-4), quadratic=st.sampled_from([0.0, 1e-11])
)
def test_a_quadratic_is_found_again(fixed: float, linear: float, quadratic: float) -> None:
    truth = {t: fixed + linear * t + quadratic * t**2 for t in LENGTHS}
    model = fitted_prefill(truth, source="drawn")
    for tokens, seconds in truth.items():
        assert model.seconds(tokens) == pytest.approx(seconds, rel=1e-3)


def test_terms_are_never_negative() -> None:
    model = fitted_prefill({1000: 1.0, 2000: 1.5, 4000: 1.9, 8000: 2.0}, source="made up")
    assert min(model.fixed_s, model.linear_s, model.quadratic_s) >= 0


def test_a_single_length_gives_a_line_through_zero() -> None:
    assert fitted_prefill({1000: 2.0}, source="made up").seconds(500) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["kimi-linear-48b-a3b", "llama-3.1-70b"])
def test_the_bound_is_the_flops_over_the_rate_at_any_length(name: str) -> None:
    arch = load_architecture(name)
    model = bounded_prefill(arch, tflop_s=1000, gpus=2, share=0.5, source="made up")
    for tokens in LENGTHS:
        assert model.seconds(tokens) == pytest.approx(prefill_flops(arch, tokens) / 1e15, rel=1e-6)
