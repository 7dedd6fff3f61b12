"""Registration with explicit names; a second entry of the same name is refused.

Third parties offer entries through entry points. One that can't be loaded is left out with a
warning: it belongs to somebody else, and must not stop the commands that do without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from benchx.core.errors import BenchxError, UsageError, unknown_word

T = TypeVar("T")

LOG = logging.getLogger(__name__)
"""Nobody configures it, so warnings go to stderr as they are (or to the log file of a worker)."""


@dataclass(frozen=True, kw_only=True)
class BrokenPlugin:
    """An entry point that was left out because it can't be loaded or registered.

    Attributes:
        group: Entry-point group, such as `benchx.operators`.
        name: Name of the entry point.
        package: Name of the distribution that installed it; None when the metadata names none.
        error: Type and text of what was raised.
    """

    group: str
    name: str
    package: str | None
    error: str

    def __str__(self) -> str:
        owner = f"package {self.package}" if self.package else "an unnamed package"
        return f"plugin {self.name!r} ({self.group}) of {owner} can't be loaded: {self.error}"

    @property
    def remedy(self) -> str:
        """What the user can do about it."""
        name = self.package or "the package"
        return f"reinstall, update or uninstall {name}"


_BROKEN: dict[tuple[str, str], BrokenPlugin] = {}


def broken_plugins() -> tuple[BrokenPlugin, ...]:
    """The plugins that have been left out so far, in the order in which they failed."""
    return tuple(_BROKEN.values())


def load_plugins(group: str, register: Callable[[str, Any], object]) -> None:
    """Load each entry point of `group` and hand its name and object to `register`.

    One that fails, in loading or in registering, is left out, logged as a warning and listed by
    `broken_plugins`; the others are loaded all the same.
    """
    for point in entry_points(group=group):
        try:
            register(point.name, point.load())
        except (Exception, SystemExit) as error:  # an import may raise anything, or exit
            _leave_out(point, group, error)


def _leave_out(point: EntryPoint, group: str, error: BaseException) -> None:
    # The finders of other tools may give entry points without a distribution.
    dist = getattr(point, "dist", None)
    broken = BrokenPlugin(
        group=group,
        name=point.name,
        package=dist.name if dist else None,
        error=str(error) if isinstance(error, BenchxError) else f"{type(error).__name__}: {error}",
    )
    if (group, point.name) not in _BROKEN:
        LOG.warning("warning: %s; it is left out (%s)", broken, broken.remedy)
    _BROKEN[group, point.name] = broken


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
        """The entry called `name`.

        Raises:
            UsageError: No entry is; the message names the nearest one, or the plugin of this name
                that can't be loaded.
        """
        self._load_plugins()
        if name not in self._entries:
            broken = _BROKEN.get((self.group or "", name))
            if broken:
                raise UsageError(str(broken), hint=broken.remedy)
            raise unknown_word(self.noun, name, self._entries)
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
        self._loaded = True  # first: a plugin's module may ask this registry while it is imported
        load_plugins(self.group, self.add)
