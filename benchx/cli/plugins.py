"""Every plugin of third parties: loaded, so that those which can't be are known."""

from __future__ import annotations

from benchx.core.registry import BrokenPlugin, broken_plugins


def find_broken_plugins() -> tuple[BrokenPlugin, ...]:
    """Load the plugins of every kind; returns those that can't be loaded or registered."""
    from benchx.cli.words import vocabulary
    from benchx.economics.formulas import FORMULAS
    from benchx.ops.base import OPERATORS, backends_of
    from benchx.reporting.sink import SINKS
    from benchx.runner.levels import LEVELS

    vocabulary()  # operators, engines and data sets
    backends_of(OPERATORS.names()[0])  # loads those of all operators
    for registry in (FORMULAS, LEVELS, SINKS):
        registry.names()
    return broken_plugins()
