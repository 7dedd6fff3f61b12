"""Registration is explicit, refuses a second entry of a name and helps with a misspelt one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import NoReturn

import pytest

from benchx.core import registry
from benchx.core.errors import BenchxError, UsageError
from benchx.core.registry import Registry, broken_plugins


@pytest.fixture(autouse=True)
def _none_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_BROKEN", {})


def _offer(monkeypatch: pytest.MonkeyPatch, **entries: Callable[[], object]) -> None:
    """Make `entry_points` offer these names; each value is what `load` calls."""
    dist = SimpleNamespace(name="their-package")
    found = [SimpleNamespace(name=name, load=load, dist=dist) for name, load in entries.items()]
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
    _offer(monkeypatch, ours=lambda: 7, theirs=lambda: 8)
    numbers: Registry[int] = Registry("number", group="g")
    numbers.add("ours", 1)
    assert list(numbers) == [1, 8]
    (broken,) = broken_plugins()
    assert "number 'ours' is registered twice" in str(broken)


def _raising(error: BaseException) -> Callable[[], object]:
    def load() -> NoReturn:
        raise error

    return load


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module named 'gone'"), "ModuleNotFoundError: No module named"),
        (AttributeError("no attribute 'OP'"), "AttributeError: no attribute 'OP'"),
        (RuntimeError("no licence"), "RuntimeError: no licence"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_plugin_that_cannot_be_loaded_is_left_out_and_named_once_with_its_package(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, told: str
) -> None:
    _offer(monkeypatch, first=lambda: 1, bad=_raising(error), last=lambda: 2)
    numbers: Registry[int] = Registry("number", group="g")
    for _ in range(2):
        assert numbers.names() == ("first", "last")
    (broken,) = broken_plugins()
    assert (broken.group, broken.name, broken.package) == ("g", "bad", "their-package")
    assert broken.error.startswith(told)
    (warning,) = caplog.messages
    assert "plugin 'bad' (g) of package their-package can't be loaded" in warning
    assert "uninstall their-package" in warning


def test_who_asks_for_a_broken_plugin_learns_why_it_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _offer(monkeypatch, bad=_raising(ImportError("libgone.so")))
    numbers: Registry[int] = Registry("number", group="g")
    with pytest.raises(UsageError, match=r"of package their-package.*ImportError: libgone\.so"):
        numbers.get("bad")


def test_ctrl_c_while_a_plugin_loads_is_not_taken_for_a_broken_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _offer(monkeypatch, slow=_raising(KeyboardInterrupt()))
    numbers: Registry[int] = Registry("number", group="g")
    with pytest.raises(KeyboardInterrupt):
        numbers.names()
    assert broken_plugins() == ()


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
