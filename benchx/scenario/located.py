"""Plain data that remembers where each piece was written, across files and `--set` texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchx.core.axes import Scalar
from benchx.core.errors import Location, ScenarioError

Where = Location | str
"""A place in a file, or the text of the `--set` that wrote the value."""

Steps = Sequence[str | int]
"""Keys and list positions (from 0) that lead from the root to a value."""


@dataclass(frozen=True)
class Located:
    """A scalar, list or mapping and the place it begins (for a mapping's entry, its key's)."""

    value: Mapping[str, Located] | tuple[Located, ...] | Scalar | None
    where: Where

    @classmethod
    def from_plain(cls, data: object, where: Where) -> Located:
        """Wrap plain data that came from one place as a whole, such as `run.json`."""
        if isinstance(data, Mapping):
            return cls({str(key): cls.from_plain(item, where) for key, item in data.items()}, where)
        if isinstance(data, list | tuple):
            return cls(tuple(cls.from_plain(item, where) for item in data), where)
        if data is None or isinstance(data, str | int | float | bool):
            return cls(data, where)
        raise ScenarioError(where, problem=f"{type(data).__name__} is not plain data")

    @property
    def entries(self) -> Mapping[str, Located]:
        """The entries of a mapping; none for anything else."""
        return self.value if isinstance(self.value, Mapping) else {}

    @property
    def items(self) -> tuple[Located, ...]:
        """The items of a list; none for anything else."""
        return self.value if isinstance(self.value, tuple) else ()

    def plain(self) -> Any:  # noqa: ANN401 - what it holds depends on the file
        """The bare value: dictionaries, tuples and scalars."""
        if isinstance(self.value, Mapping):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(item.plain() for item in self.value)
        return self.value

    def child(self, step: str | int) -> Located | None:
        """One step down, or None where there is nothing."""
        if isinstance(step, str):
            return self.entries.get(step)
        return self.items[step] if 0 <= step < len(self.items) else None

    def at(self, path: Steps) -> Located:
        """The deepest value along the path that exists: the best place to point at."""
        found = self
        for step in path:
            below = found.child(step)
            if below is None:
                break
            found = below
        return found

    def with_entries(self, entries: Mapping[str, Located]) -> Located:
        """The same mapping with other entries."""
        return replace(self, value=dict(entries))


def show(value: object) -> str:
    """A value for a message: short, on one line, spelled as in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:45]}... ({len(str(value))} characters)"


def dotted(path: Steps) -> str:
    """`axes.heads.0`, as `--set` takes it."""
    return ".".join(str(step) for step in path)
