"""Files -> one document: `extends` joined, the parts of a suite read in."""

from __future__ import annotations

import re
from pathlib import Path

from benchx.core.errors import Location, ScenarioError
from benchx.scenario.files import locate, read_file
from benchx.scenario.located import Located, Where, dotted, show
from benchx.scenario.merge import join

MAX_FILES = 100
"""Files read for one scenario; suites of suites of suites could ask for millions."""

# A file speaks of itself here; an heir has its own name and asks its own question.
_OWN = ("name", "title")


def slug(text: str) -> str:
    """The text as a name that is safe for a folder: `My test` is `my-test`."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "scenario"


class Resolver:
    """Reads one scenario and whatever it names, refusing cycles and floods of files."""

    def __init__(self) -> None:
        self._files = 0

    def file(
        self,
        path: Path,
        chain: tuple[Path, ...] = (),
        named_at: Where | None = None,
        key: str | None = None,
    ) -> Located:
        """The document of a file, complete.

        Args:
            path: The file.
            chain: Files that led here, outermost first.
            named_at: Where the last of them names this one.
            key: The key it names it under.
        """
        place = named_at or Location(path)
        real = path.resolve()
        if real in chain:
            names = " -> ".join(file.name for file in (*chain[chain.index(real) :], real))
            raise ScenarioError(
                place, key=key, problem=f"goes round in a circle: {names}", expected="an end"
            )
        self._files += 1
        if self._files > MAX_FILES:
            expected = f"at most {MAX_FILES} files in all"
            raise ScenarioError(place, key=key, problem="one file too many", expected=expected)
        document = read_file(path)
        if not document.entries:
            raise ScenarioError(
                document.where,
                problem=f"got {show(document.plain())}",
                expected="a mapping (key: value lines)",
            )
        whole = self.document(document, (*chain, real))
        if "schema" not in whole.entries:
            raise ScenarioError(
                whole.where, key="schema", problem="missing", expected="`schema: 1` on top"
            )
        named = {"name": Located(slug(path.stem), whole.where)} | dict(whole.entries)
        return whole.with_entries(named)

    def document(self, document: Located, chain: tuple[Path, ...]) -> Located:
        """A mapping with its `extends` joined and its parts read in."""
        parent = document.entries.get("extends")
        if parent is not None:
            base = self._named(parent, ("extends",), chain)
            rest = {key: item for key, item in document.entries.items() if key != "extends"}
            inherited = {key: item for key, item in base.entries.items() if key not in _OWN}
            document = join(base.with_entries(inherited), document.with_entries(rest))
        parts = document.entries.get("parts")
        if parts is None or not parts.items:
            return document
        read = Located(
            tuple(self._part(part, index, chain) for index, part in enumerate(parts.items)),
            parts.where,
        )
        return document.with_entries({**document.entries, "parts": read})

    def _part(self, part: Located, index: int, chain: tuple[Path, ...]) -> Located:
        if isinstance(part.value, str):
            return self._named(part, ("parts", index), chain)
        if part.entries:
            return self.document(part, chain)
        raise ScenarioError(
            part.where,
            key=dotted(("parts", index)),
            problem=f"got {show(part.plain())}",
            expected="the name of a scenario, or a mapping",
        )

    def _named(self, name: Located, key: tuple[str | int, ...], chain: tuple[Path, ...]) -> Located:
        """The document that a value names by path or shipped name."""
        if not isinstance(name.value, str) or not name.value.strip():
            raise ScenarioError(
                name.where,
                key=dotted(key),
                problem=f"got {show(name.plain())}",
                expected="the path or name of one scenario",
            )
        folder = name.where.path.parent if isinstance(name.where, Location) else Path()
        path = locate(name.value, folder=folder, named_at=name.where, key=dotted(key))
        return self.file(path, chain, name.where, dotted(key))
