"""The verbs, by name: a verb's module is imported when it is called, so that help stays quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Verb:
    """One verb; its module in this package bears its name.

    Attributes:
        name: As typed; the function is called the same, with an underscore where Python has the
            word already (`list_`).
        summary: The first line of the function's docstring, for `benchx --help`.
    """

    name: str
    summary: str


VERBS = (
    Verb("run", "Measure a scenario."),
    Verb("plan", "Print what a run would do."),
    Verb("list", "List scenarios, operators, backends, engines, metrics and more."),
    Verb("doctor", "Show the machine and its backends."),
    Verb("report", "Show and write the tables and figures of finished runs."),
    Verb("calibrate", "Check timers and load generator against known references."),
    Verb("probe", "Find out how a server behaves."),
    Verb("kv", "Estimate KV-cache sizes and when loading beats recomputing."),
)


def implementation(verb: Verb) -> Callable[..., Any]:
    """Import the module of a verb; returns the function that Typer calls."""
    module = import_module(f"benchx.cli.{verb.name}")
    name = "list_" if verb.name == "list" else verb.name
    function: Callable[..., Any] = getattr(module, name)
    return function
