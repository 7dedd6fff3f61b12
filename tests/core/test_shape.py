"""What was read from a file is what its dataclass says, or an error names the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from benchx.core.outcome import Outcome
from benchx.core.shape import check_shape


@dataclass(frozen=True, kw_only=True)
class Inner:
    ratio: Mapping[str, float]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str = "x"
    count: int = 1
    share: float | None = None
    level: Literal["kernel", "model"] = "kernel"
    outcome: Outcome = Outcome.OK
    inner: Inner | None = None
    free: Mapping[str, Any] = field(default_factory=dict)


GOOD = Outer(inner=Inner(ratio={"o": 1, "s": 0.5}, notes=("a",)), free={"a": [object()]})


def test_what_fits_passes_and_a_whole_number_does_for_a_float() -> None:
    check_shape(GOOD)
    check_shape(replace(GOOD, share=2, inner=None))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": 5}, "name: got 5, expected str"),
        ({"count": "5"}, "count: got '5', expected int"),
        ({"count": 1.5}, "count: got 1.5, expected int"),
        ({"count": True}, "count: got True, expected int"),
        ({"share": "5"}, "share: got '5', expected float"),
        ({"share": float("nan")}, "share: got nan"),
        ({"level": "none"}, "level: got 'none', expected 'kernel' or 'model'"),
        ({"outcome": "ok"}, "outcome: got 'ok', expected outcome"),
        ({"inner": Inner(ratio={"o": "1"})}, "inner.ratio.o: got '1', expected float"),
        ({"inner": Inner(ratio={1: 1.0})}, "inner.ratio: got 1, expected str"),
        ({"inner": Inner(ratio={}, notes=("a", 1))}, "inner.notes.1: got 1, expected str"),
        ({"inner": Inner(ratio={}, notes=["a"])}, "inner.notes: got .*, expected tuple"),
        ({"free": [1]}, r"free: got \[1\], expected mapping"),
        ({"name": list(range(99))}, r"name: got \[0, 1, .*\.\.\., expected str"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_value(
    change: dict[str, object], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        check_shape(replace(GOOD, **change))
