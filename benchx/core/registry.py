"""Registration with explicit names; a second entry of the same name is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from benchx.core.errors import BenchxError, UsageError, nearest_word

T = TypeVar("T")


@dataclass(frozen=True)
class _Later(Generic[T]):
    """An entry that is made on first use."""

    make: Callable[[], T]


class Registry(Generic[T]):
    """Named things of one kind, built-ins first, then those third parties offer.

    Args:
        noun: What one entry is called in messages ("operator").
        group: Entry-point group scanned on first use, or None.
    """

    def __init__(self, noun: str, *, group: str | None = None) -> None:
        self.noun, self.group = noun, group
        self._entries: dict[str, T | _Later[T]] = {}
        self._loaded = group is None

    def add(self, name: str, entry: T) -> T:
        """Register `entry`; raises BenchxError when `name` is taken."""
        self._put(name, entry)
        return entry

    def add_later(self, name: str, make: Callable[[], T]) -> None:
        """Register what `make` returns, which is called (and imports what it must) on first use."""
        self._put(name, _Later(make))

    def get(self, name: str) -> T:
        """The entry called `name`; raises UsageError with the nearest known name."""
        self._load_plugins()
        if name not in self._entries:
            near = nearest_word(name, self._entries)
            tail = f"; did you mean {near!r}?" if near else f"; known: {', '.join(self.names())}"
            raise UsageError(f"unknown {self.noun} {name!r}{tail}")
        return self._made(name)

    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        self._load_plugins()
        return tuple(self._entries)

    def __iter__(self) -> Iterator[T]:
        self._load_plugins()
        return iter(tuple(self._made(name) for name in tuple(self._entries)))

    def __contains__(self, name: object) -> bool:
        self._load_plugins()
        return name in self._entries

    def _put(self, name: str, entry: T | _Later[T]) -> None:
        if name in self._entries:
            first = self._entries[name]
            taken = first.make.__module__ if isinstance(first, _Later) else type(first).__module__
            raise BenchxError(f"{self.noun} {name!r} is registered twice (first by {taken})")
        self._entries[name] = entry

    def _made(self, name: str) -> T:
        entry = self._entries[name]
        if isinstance(entry, _Later):
            entry = entry.make()
            self._entries[name] = entry
        return entry

    def _load_plugins(self) -> None:
        if self._loaded or self.group is None:
            return
        self._loaded = True
        for point in entry_points(group=self.group):
            self.add(point.name, point.load())
