"""`load`: from a path or name to a checked scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchx.core.errors import Location, ScenarioError, nearest_word
from benchx.scenario.files import locate
from benchx.scenario.kinds import KINDS
from benchx.scenario.located import Located, show
from benchx.scenario.merge import join
from benchx.scenario.overrides import Override
from benchx.scenario.resolve import Resolver, slug
from benchx.scenario.schema import SCHEMA, Part, Suite
from benchx.scenario.validation import validated

SUITE = "suite"

SHARED = ("measure", "check", "cost")
"""What a suite may say once for all of its parts; it reaches those whose kind has it."""

MAX_PARTS = 1000


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A checked scenario; a suite has several parts, everything else one.

    Attributes:
        name: Names the run folder.
        title: The question that it answers.
        source: The file it was read from.
        parts: What to measure, in order.
        origins: The located data of each part, for errors found later.
    """

    name: str
    title: str
    source: Path
    parts: tuple[Part, ...]
    origins: tuple[Located, ...] = field(compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The scenario as resolved: plain data that `from_json` and, as YAML, `load` read back."""
        if len(self.parts) == 1:
            return self.parts[0].to_json() | {"name": self.name, "title": self.title}
        return {
            "schema": SCHEMA,
            "name": self.name,
            "title": self.title,
            "kind": SUITE,
            "parts": [part.to_json() for part in self.parts],
        }

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], *, source: Path, overrides: Sequence[str] = ()
    ) -> Scenario:
        """Restore what `to_json` wrote, `--set` texts applied in order.

        Errors name `source`, the file that holds it, or the override.
        """
        document = Located.from_plain(data, Location(source))
        for override in map(Override.parse, overrides):
            document = _overridden(document, override)
        return _build(document, source)


def load(path_or_name: str | Path, *, overrides: Sequence[str] = ()) -> Scenario:
    """Read, join, override and check a scenario; operators and axes are checked by `expand`.

    Args:
        path_or_name: A file, or the name of a scenario that ships with benchx.
        overrides: `--set` texts, applied in order.

    Raises:
        ScenarioError: For everything that is wrong with the file or an override.
    """
    path = locate(path_or_name)
    resolver = Resolver()
    document = resolver.file(path)
    for override in map(Override.parse, overrides):
        document = _overridden(document, override)
    return _build(resolver.document(document, (path.resolve(),)), path)


def _overridden(document: Located, override: Override) -> Located:
    """The document with the override; what a suite shares is written into its parts too."""
    changed = join(document, override.overlay(document))
    parts = changed.child("parts")
    if override.steps[0] not in SHARED or parts is None:
        return changed
    items = tuple(
        _overridden(part, override) if part.entries and _takes(part, override.steps[0]) else part
        for part in parts.items
    )
    return changed.with_entries({**changed.entries, "parts": Located(items, parts.where)})


def _build(document: Located, source: Path) -> Scenario:
    """Check every part and put the scenario together."""
    top = _titled(document)
    origins = tuple(islice(_flat(top), MAX_PARTS + 1))
    if len(origins) > MAX_PARTS:
        where, expected = top.at(("parts",)).where, f"at most {MAX_PARTS}"
        raise ScenarioError(where, key="parts", problem="too many parts", expected=expected)
    parts = tuple(_part(origin) for origin in origins)
    # Both are checked words by now, in a part or in the suite.
    name, title = str(top.entries["name"].value), str(top.entries["title"].value)
    return Scenario(name=name, title=title, source=source, parts=parts, origins=origins)


def _flat(document: Located) -> Iterator[Located]:
    """The parts of a document that are no suites; what a suite shares is laid under them."""
    kind = document.child("kind")
    if kind is None or kind.value != SUITE:
        yield document
        return
    validated(Suite, document)
    parts = document.entries["parts"].items
    shared = {key: document.entries[key] for key in SHARED if key in document.entries}
    for key, said in shared.items():
        if not any(_takes(part, key) for part in parts):
            known = [name for name in SHARED if any(_takes(part, name) for part in parts)]
            raise ScenarioError(
                said.where,
                key=key,
                problem=f"none of the parts has a setting `{key}`",
                expected=f"one of {', '.join(known)}",
            )
    for part in parts:
        own = {key: said for key, said in shared.items() if _takes(part, key)}
        yield from _flat(_titled(join(part.with_entries(own), part)))


def _takes(part: Located, key: str) -> bool:
    """Whether a part, or one of a suite within it, has a setting that a suite may share.

    A kind that is not known is told when the part itself is checked.
    """
    kind = part.child("kind")
    if kind is not None and kind.value == SUITE:
        return any(_takes(one, key) for one in part.at(("parts",)).items)
    if kind is None or not isinstance(kind.value, str) or kind.value not in KINDS:
        return True
    return key in KINDS.get(kind.value).model.model_fields


def _titled(document: Located) -> Located:
    """With a name and a title: an inline part that has none is named after what it measures."""
    entries = dict(document.entries)
    named = next((entries[key] for key in ("op", "architecture") if key in entries), None)
    subject = str(named.value) if named is not None else "part"
    entries.setdefault("name", Located(slug(subject), document.where))
    name = entries["name"]
    entries.setdefault("title", Located(str(name.value) or "untitled", name.where))
    return document.with_entries(entries)


def _part(origin: Located) -> Part:
    """One part, checked as far as that is possible without knowing what is registered."""
    kind = origin.at(("kind",))
    if kind is origin or not isinstance(kind.value, str) or kind.value not in KINDS:
        known = (*KINDS.names(), SUITE)
        raise ScenarioError(
            kind.where,
            key="kind",
            problem="missing" if kind is origin else f"got {show(kind.plain())}",
            expected=f"one of {', '.join(known)}",
            nearest=nearest_word(str(kind.value), known) if kind is not origin else None,
        )
    registered = KINDS.get(kind.value)
    part = validated(registered.model, origin)
    registered.check(part, origin)
    return part
