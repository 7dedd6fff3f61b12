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
    assert found.at == pytest.approx(at)
    assert found.first_ratio < 1 < found.last_ratio


def test_curves_that_never_meet_have_no_crossing() -> None:
    found = crossover(dict.fromkeys(LENGTHS, 1.0), dict.fromkeys(LENGTHS, 2.0))
    assert found is not None
    assert found.at is None
    assert found.last_ratio == pytest.approx(2)


def test_one_common_length_is_too_few() -> None:
    assert crossover({1: 1.0, 2: 1.0}, {2: 1.0, 3: 1.0}) is None
