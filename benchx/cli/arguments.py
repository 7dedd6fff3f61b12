"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A YAML file, or the name of a shipped scenario.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Replace a value, such as 'axes.heads=[32, 64]'."
    ),
]
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder to write to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

NEWEST = "newest"
"""What a bare `--resume` stands for."""


def with_resume_value(arguments: Sequence[str]) -> list[str]:
    """Give a bare `--resume` its value, so that `--resume` and `--resume RUN` can both be said."""
    given = list(arguments)
    for place, word in enumerate(given):
        following = given[place + 1] if place + 1 < len(given) else "-"
        if word == "--resume" and following.startswith("-"):
            given[place] = f"--resume={NEWEST}"
    return given
