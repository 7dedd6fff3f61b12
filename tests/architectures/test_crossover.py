"""Where curves cross."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.architectures.crossover import crossover

LENGTHS = [1024, 4096, 16384, 65536]


@given(at=st.floats(1100, 60000), slope=st.floats(0.2, 2))
def test_power_laws_cross_where_they_meet(at: float, slope: float) -> None:
    flat = dict.fromkeys(LENGTHS, 1.0)
    rising = {length: (length / at) ** slope for length in LENGTHS}
    found = crossover(flat, rising)
    assert found is not None
    assert found.at == (pytest.approx(at),)
    assert found.first_ratio < 1 < found.last_ratio


def test_curves_that_never_meet_have_no_crossing() -> None:
    found = crossover(dict.fromkeys(LENGTHS, 1.0), dict.fromkeys(LENGTHS, 2.0))
    assert found is not None
    assert found.at == ()
    assert found.last_ratio == pytest.approx(2)


def test_every_crossing_is_found_in_order() -> None:
    own = {1024: 1.0, 4096: 2.0, 16384: 1.0}
    other = {1024: 2.0, 4096: 1.0, 16384: 2.0}
    found = crossover(own, other)
    assert found is not None
    assert found.at == (pytest.approx(2048), pytest.approx(8192))


def test_curves_that_meet_at_a_measured_length_cross_there_once() -> None:
    found = crossover(
        dict.fromkeys(LENGTHS, 1.0), dict(zip(LENGTHS, (0.5, 1.0, 2.0, 4.0), strict=True))
    )
    assert found is not None
    assert found.at == (pytest.approx(4096),)


def test_one_common_length_is_too_few() -> None:
    assert crossover({1: 1.0, 2: 1.0}, {2: 1.0, 3: 1.0}) is None
