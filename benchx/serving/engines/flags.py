"""From typed settings and pass-through arguments to one command line; nothing is said twice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from benchx.core.errors import UsageError
from benchx.serving.engines.base import ArgValue


def command_line(
    program: Sequence[str],
    typed: Mapping[str, ArgValue | None],
    passed: Mapping[str, ArgValue],
) -> tuple[str, ...]:
    """Program, typed flags, then pass-through flags in the order of the scenario.

    Args:
        program: What comes before the flags.
        typed: Flag without dashes -> value from a field of the settings; None leaves it out.
        passed: Flag without dashes -> value, as the scenario has it.

    Raises:
        UsageError: When a passed flag repeats a typed one, or has a value that no flag can have.
    """
    given = {flag: value for flag, value in typed.items() if value is not None}
    names = {_bare(flag) for flag in given}
    words = list(program)
    for flag, value in given.items():
        words += _words(flag, value)
    for flag, value in passed.items():
        if _bare(flag) in names:
            raise UsageError(
                f"engine.args: --{_bare(flag)} is set by a field of `engine` already",
                hint="say it once",
            )
        words += _words(flag, value)
    return tuple(words)


def _bare(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-").removeprefix("no-")


def _words(flag: str, value: ArgValue) -> list[str]:
    name = f"--{flag.lstrip('-')}"
    if value is True:
        return [name]
    if value is False or value is None:
        raise UsageError(
            f"engine.args: {name} has the value {value!r}, which no flag can carry",
            hint=f"leave it out, or name the flag that turns it off (such as --no-{name[2:]})",
        )
    if isinstance(value, dict):
        return [name, json.dumps(value, separators=(",", ":"))]
    if isinstance(value, list | tuple):
        return [name, *(str(item) for item in value)]
    return [name, str(value)]


def switch(name: str, wanted: bool | None) -> dict[str, ArgValue | None]:
    """A flag with an opposite: `--name` or `--no-name`; nothing when it is not said."""
    return {} if wanted is None else {name if wanted else f"no-{name}": True}
