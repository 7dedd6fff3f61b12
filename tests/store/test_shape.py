"""What was read from a file is what its dataclass says, or an error names the place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest

from benchx.core.outcome import Outcome
from benchx.store.shape import restored


@dataclass(frozen=True, kw_only=True)
class Inner:
    ratio: Mapping[str, float]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "bad" in self.ratio:
            raise ValueError("a bad ratio says nothing")


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str = "x"
    count: int = 1
    share: float | None = None
    level: Literal["kernel", "model"] = "kernel"
    outcome: Outcome = Outcome.OK
    inner: Inner | None = None
    free: Mapping[str, Any] = field(default_factory=dict)


GOOD = Outer(inner=Inner(ratio={"o": 1, "s": 0.5}, notes=("a",)), free={"a": [{"b": None}]})


def plain(value: Outer) -> dict[str, Any]:
    """As it stands in a file."""
    data: dict[str, Any] = json.loads(json.dumps(asdict(value)))
    return data


def test_what_was_written_is_read_back_equal() -> None:
    assert restored(plain(GOOD), Outer) == GOOD


def test_a_whole_number_does_for_a_float_and_defaults_for_what_is_not_there() -> None:
    assert restored({"share": 2}, Outer) == Outer(share=2.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": 5}, "name: got 5, expected text"),
        ({"name": None}, "name: got None, expected text"),
        ({"count": "5"}, "count: got '5', expected a whole number"),
        ({"count": 1.5}, "count: got 1.5, expected a whole number"),
        ({"count": True}, "count: got True, expected a whole number"),
        ({"share": "5"}, "share: got '5', expected a number"),
        ({"share": True}, "share: got True, expected a number"),
        ({"share": float("nan")}, "share: got nan, expected a finite number"),
        ({"level": "none"}, "level: got 'none', expected 'kernel' or 'model'"),
        ({"outcome": "good"}, "outcome: got 'good', expected 'ok', 'wrong', "),
        ({"inner": []}, r"inner: got \[\], expected a mapping"),
        ({"inner": {}}, r"inner.ratio: missing"),
        ({"inner": {"ratio": {"o": "1"}}}, "inner.ratio.o: got '1', expected a number"),
        ({"inner": {"ratio": {}, "notes": ["a", 1]}}, "inner.notes.1: got 1, expected text"),
        ({"inner": {"ratio": {}, "notes": "a"}}, "inner.notes: got 'a', expected a list"),
        ({"inner": {"ratio": {"bad": 1}}}, "inner: a bad ratio says nothing"),
        ({"inner": {"ratio": {}, "note": []}}, "inner.note: no field of that name is known"),
        ({"free": [1]}, r"free: got \[1\], expected a mapping"),
        ({"name": list(range(99))}, r"name: got \[0, 1, .*\.\.\., expected text"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_value(
    change: dict[str, object], told: str
) -> None:
    with pytest.raises(ValueError, match=f"^{told}"):
        restored(plain(GOOD) | change, Outer)
