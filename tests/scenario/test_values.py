"""Values of axes as written and as stored."""

from __future__ import annotations

import pytest

from benchx.core.axes import AxisSpec, Scalar
from benchx.core.units import UnitError
from benchx.scenario.values import axis_value

SIZE = AxisSpec(type="bytes", doc="size of a block", minimum=4)


@pytest.mark.parametrize(
    ("written", "stored"),
    [(4096, 4096), ("4k", 4096), ("4KiB", 4096), ("2GiB", 2**31), ("2 GB", 2 * 10**9)],
)
def test_sizes_may_have_a_unit_and_are_stored_in_bytes(written: Scalar, stored: int) -> None:
    assert axis_value(SIZE, written) == stored


@pytest.mark.parametrize("wrong", ["2B", 3, "0.3KiB", "2GiBs", "many", "4 KB", True, 1.5, -8])
def test_what_is_no_size_or_too_small_is_refused(wrong: Scalar) -> None:
    with pytest.raises(UnitError, match="expected a size in bytes of at least 4") as refused:
        axis_value(SIZE, wrong)
    assert refused.value.value == wrong


def test_a_count_takes_no_unit_of_bytes() -> None:
    with pytest.raises(UnitError, match="whole number"):
        axis_value(AxisSpec(type="int", doc="tokens"), "4KiB")
