"""Registration is explicit, refuses a second entry of a name and helps with a misspelt one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from benchx.core import registry
from benchx.core.errors import BenchxError, UsageError
from benchx.core.registry import Registry


def _offer(monkeypatch: pytest.MonkeyPatch, **entries: Callable[[], object]) -> None:
    """Make `entry_points` offer these names; each value is what `load` calls."""
    found = [SimpleNamespace(name=name, load=load) for name, load in entries.items()]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: found if group == "g" else [])


def test_entries_keep_the_order_of_registration() -> None:
    numbers: Registry[int] = Registry("number")
    for name, value in (("two", 2), ("one", 1), ("three", 3)):
        numbers.add(name, value)
    assert numbers.names() == ("two", "one", "three")
    assert list(numbers) == [2, 1, 3]


def test_a_second_entry_of_the_same_name_is_refused_and_the_first_one_stays() -> None:
    numbers: Registry[int] = Registry("number")
    numbers.add("one", 1)
    with pytest.raises(BenchxError, match="number 'one' is registered twice"):
        numbers.add("one", 11)
    assert numbers.get("one") == 1


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    numbers: Registry[int] = Registry("number")
    numbers.add("recurrent", 1)
    with pytest.raises(UsageError, match=r"unknown number 'recurent'; did you mean 'recurrent'\?"):
        numbers.get("recurent")


def test_a_name_like_no_other_is_answered_with_all_names() -> None:
    numbers: Registry[int] = Registry("number")
    numbers.add("one", 1)
    numbers.add("two", 2)
    with pytest.raises(UsageError, match="unknown number 'zzz'; known: one, two"):
        numbers.get("zzz")


def test_entry_points_come_after_the_built_in_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, theirs=lambda: 7)
    numbers: Registry[int] = Registry("number", group="g")
    numbers.add("ours", 1)
    assert numbers.names() == ("ours", "theirs")
    assert "theirs" in numbers


def test_entry_points_are_not_loaded_before_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads: list[str] = []
    _offer(monkeypatch, theirs=lambda: loads.append("theirs"))
    numbers: Registry[int] = Registry("number", group="g")
    numbers.add("ours", 1)
    assert loads == []
    assert numbers.names() == ("ours", "theirs")
    assert numbers.names() == ("ours", "theirs")
    assert loads == ["theirs"]


def test_an_entry_point_cannot_replace_a_built_in_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, ours=lambda: 7)
    numbers: Registry[int] = Registry("number", group="g")
    numbers.add("ours", 1)
    with pytest.raises(BenchxError, match="registered twice"):
        numbers.get("ours")


def test_an_entry_for_later_is_made_once_on_first_use_and_holds_its_place() -> None:
    made: list[str] = []

    def make() -> int:
        made.append("one")
        return 1

    numbers: Registry[int] = Registry("number")
    numbers.add_later("one", make)
    numbers.add("two", 2)
    assert numbers.names() == ("one", "two")
    assert "one" in numbers
    assert made == []
    assert list(numbers) == [1, 2]
    assert numbers.get("one") == 1
    assert made == ["one"]


def test_an_entry_for_later_can_not_be_replaced() -> None:
    numbers: Registry[int] = Registry("number")
    numbers.add_later("one", lambda: 1)
    with pytest.raises(BenchxError, match=rf"registered twice \(first by {__name__}\)"):
        numbers.add("one", 11)
