"""YAML text -> located plain data, strictly: one document, no tags, no duplicate keys, bounded.

Values are built from PyYAML's events, not by its constructors: nothing in a file can name a Python
object, and size, depth and the growth through aliases are checked while reading, before any data
is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import yaml

from benchx.core.axes import Scalar
from benchx.core.errors import Location, ScenarioError
from benchx.core.units import UnitError
from benchx.scenario.located import Located, Where, dotted, show
from benchx.scenario.scalars import resolve_scalar

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
MAX_VALUES = 20_000
"""Values after aliases are followed; nine lines of an anchor bomb would make billions."""

_VALUE_EVENTS = yaml.ScalarEvent | yaml.MappingStartEvent | yaml.SequenceStartEvent
_TAB_INDENT = re.compile(r"^ *\t", re.MULTILINE)


def read_yaml(text: str, where: Where) -> Located:
    """The one document in the text.

    Args:
        text: YAML.
        where: The file (lines are added to it), or the `--set` text that the YAML comes from.

    Raises:
        ScenarioError: For everything that is not one plain, bounded document.
    """
    return _Reader(text, where).document()


@dataclass(frozen=True)
class _Anchor:
    """A complete value that aliases may repeat, its number of values and its levels below."""

    value: Located
    values: int
    height: int


class _Reader:
    """Builds located data from parser events."""

    def __init__(self, text: str, where: Where) -> None:
        self._where = where
        self._anchors: dict[str, _Anchor] = {}
        self._keys: list[str] = []
        self._values = 0
        self._check_text(text)
        self._events = self._parse(text)

    def document(self) -> Located:
        """The root value; raises when there is none or more than one."""
        next(self._events)  # stream start
        if isinstance(event := next(self._events), yaml.StreamEndEvent):
            raise self._error(None, "the file is empty", "a mapping (key: value lines)")
        root = self._value(next(self._events), depth=0)
        next(self._events)  # document end
        if not isinstance(event := next(self._events), yaml.StreamEndEvent):
            raise self._error(event, "a second document begins", "one document in a file")
        return root

    def _check_text(self, text: str) -> None:
        # A tab is legal YAML in a few places, and in each of them looks like what it is not.
        if found := _TAB_INDENT.search(text):
            line = text.count("\n", 0, found.start()) + 1
            raise ScenarioError(
                self._at_line(line), problem="a tab indents this line", expected="spaces"
            )
        if len(text) > MAX_BYTES:
            raise self._error(None, f"{len(text)} characters", f"at most {MAX_BYTES}")

    def _parse(self, text: str) -> Iterator[yaml.Event]:
        """Parser events, with the parser's errors turned into ours."""
        try:
            yield from yaml.parse(text, Loader=yaml.SafeLoader)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            problem = f"character U+{error.character:04X} is not allowed in YAML"
            raise ScenarioError(self._at_line(line), problem=problem) from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = self._at_line(mark.line + 1) if mark else self._where
            raise ScenarioError(place, problem=f"not YAML: {_one_line(error)}") from error
        except (ValueError, OverflowError) as error:
            # PyYAML lets chr() and int() fail on escapes and directives out of range.
            raise ScenarioError(self._where, problem=f"not YAML: {error}") from error

    def _value(self, event: yaml.Event, *, depth: int) -> Located:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth=depth)
        before = self._count(event, 1)
        self._check_depth(event, depth)
        if not isinstance(event, _VALUE_EVENTS):
            raise TypeError(f"the parser gave {event!r} where a value begins")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self._error(event, f"tag {show(tag)}", "plain values without tags")
        if isinstance(event, yaml.MappingStartEvent):
            built = self._mapping(event, depth=depth)
        elif isinstance(event, yaml.SequenceStartEvent):
            built = self._sequence(event, depth=depth)
        else:
            built = Located(self._scalar(event), self._at(event))
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(built, self._values - before, _height(built))
        return built

    def _mapping(self, start: yaml.Event, *, depth: int) -> Located:
        entries: dict[str, Located] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event)
            if key in entries:
                first = entries[key].where
                line = first.line if isinstance(first, Location) else None
                tail = f" (first on line {line})" if line is not None else ""
                self._keys.append(key)
                raise self._error(event, f"written twice{tail}", "each key once")
            self._keys.append(key)
            value = self._value(next(self._events), depth=depth + 1)
            self._keys.pop()
            entries[key] = replace(value, where=self._at(event))
        return Located(entries, self._at(start))

    def _sequence(self, start: yaml.Event, *, depth: int) -> Located:
        items: list[Located] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth=depth + 1))
        return Located(tuple(items), self._at(start))

    def _key(self, event: yaml.Event) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._error(event, "a key that is a list, mapping or alias", "a word as key")
        if event.tag is not None or event.anchor is not None:
            raise self._error(event, "a key with a tag or anchor", "a plain word as key")
        if event.value == "<<" and event.style is None:
            raise self._error(event, "merge keys (<<) are not read", "`extends: other.yaml`")
        return self._text(event)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar | None:
        """The value of a plain scalar; a quoted one is text."""
        text = self._text(event)
        if event.style is not None:
            return text
        try:
            return resolve_scalar(text)
        except UnitError as error:
            raise self._error(event, f"got {show(text)}", error.expected) from error

    def _text(self, event: yaml.ScalarEvent) -> str:
        text = str(event.value)
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise self._error(event, "half of a surrogate pair", "whole characters")
        return text

    def _alias(self, event: yaml.AliasEvent, *, depth: int) -> Located:
        # An anchor counts once its value is complete, so a value can't contain itself.
        if event.anchor not in self._anchors:
            problem = f"alias *{event.anchor} points at nothing"
            raise self._error(event, problem, f"a complete value marked &{event.anchor} before it")
        anchor = self._anchors[event.anchor]
        self._count(event, anchor.values)
        self._check_depth(event, depth + anchor.height)
        return replace(anchor.value, where=self._at(event))

    def _check_depth(self, event: yaml.Event, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._error(event, "values nest too deep", f"at most {MAX_DEPTH} levels")

    def _count(self, event: yaml.Event, values: int) -> int:
        """Add to the number of values; returns the number before."""
        before = self._values
        self._values += values
        if self._values > MAX_VALUES:
            problem = f"more than {MAX_VALUES} values, aliases followed"
            raise self._error(event, problem, "a scenario of a few hundred")
        return before

    def _at(self, event: yaml.Event) -> Where:
        return self._at_line(event.start_mark.line + 1) if event.start_mark else self._where

    def _at_line(self, line: int) -> Where:
        return replace(self._where, line=line) if isinstance(self._where, Location) else self._where

    def _error(self, event: yaml.Event | None, problem: str, expected: str) -> ScenarioError:
        where = self._at(event) if event is not None else self._where
        key = dotted(self._keys) or None
        return ScenarioError(where, key=key, problem=problem, expected=expected)


def _one_line(error: yaml.MarkedYAMLError) -> str:
    parts = (error.context, error.problem, error.note)
    return " ".join(" ".join(str(part).split()) for part in parts if part)


def _height(value: Located) -> int:
    """Levels below a value: 0 for a scalar."""
    below = (*value.items, *value.entries.values())
    return 1 + max((_height(item) for item in below), default=0) if below else 0
