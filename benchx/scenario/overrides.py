"""`--set path=value`: one value written over a resolved scenario, its origin remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchx.core.errors import ScenarioError
from benchx.scenario.located import Located, dotted, show
from benchx.scenario.merge import join
from benchx.scenario.reader import MAX_DEPTH, read_yaml
from benchx.scenario.secret_words import HIDDEN, may_hold_secret

EXPECTED = "path=value, such as axes.heads=[64,96] or measure.launches=1"


@dataclass(frozen=True)
class Override:
    """One `--set`.

    Attributes:
        steps: Keys and list positions from the root.
        value: The YAML behind the equals sign; null takes the entry away.
    """

    steps: tuple[str, ...]
    value: Located

    @classmethod
    def parse(cls, text: str) -> Override:
        """Split at the first equals sign; raises ScenarioError for anything else."""
        path, equals, value = text.partition("=")
        is_hidden = may_hold_secret(text)
        told = text
        if is_hidden:  # without an equals sign the secret may be in what looks like the path
            told = f"{path.strip()}={HIDDEN}" if equals else HIDDEN
        shown = told if len(told) <= 60 and told.isprintable() else f"{told[:57]!r}..."
        where = f"--set {shown}"
        steps = tuple(path.strip().split("."))
        if not equals or not all(steps):
            raise ScenarioError(where, problem="not an assignment", expected=EXPECTED)
        if len(steps) > MAX_DEPTH:
            raise ScenarioError(where, problem="the path is too long", expected=EXPECTED)
        if not value.strip():
            raise ScenarioError(
                where, key=path, problem="no value", expected="a value (null takes the entry away)"
            )
        try:
            return cls(steps, read_yaml(value, where))
        except ScenarioError:
            if not is_hidden:
                raise
            # YAML's own words may hold a part of the value, and so would the chained exception.
            raise ScenarioError(
                where, problem="the value can't be read as YAML", expected=EXPECTED
            ) from None

    def overlay(self, document: Located) -> Located:
        """What to join over the document so that the value is in place.

        A path may create entries of a mapping (whether they exist in the schema is checked with
        everything else) but neither list items nor entries of a scalar.

        Raises:
            ScenarioError: When the path leads through something that has no such entry.
        """
        return self._overlay(document, depth=0)

    def _overlay(self, target: Located, *, depth: int) -> Located:
        if depth == len(self.steps):
            return self.value
        step = self.steps[depth]
        if isinstance(target.value, tuple):
            position = self._position(target, step, depth)
            item = target.items[position]
            joined = join(item, self._overlay(item, depth=depth + 1))
            items = (*target.items[:position], joined, *target.items[position + 1 :])
            return Located(items, target.where)
        if target.value is not None and not isinstance(target.value, Mapping):
            raise self._no_entry(depth, f"{show(target.value)} has no entries", "a shorter path")
        below = target.entries.get(step, Located({}, self.value.where))
        return Located({step: self._overlay(below, depth=depth + 1)}, target.where)

    def _position(self, target: Located, step: str, depth: int) -> int:
        if step.isascii() and step.isdecimal() and len(step) < 7 and int(step) < len(target.items):
            return int(step)
        last = len(target.items) - 1
        expected = f"a position from 0 to {last}" if target.items else "a whole list as value"
        raise self._no_entry(depth, f"the list has no item {step!r}", expected)

    def _no_entry(self, depth: int, problem: str, expected: str) -> ScenarioError:
        key = dotted(self.steps[: depth + 1])
        return ScenarioError(self.value.where, key=key, problem=problem, expected=expected)
