"""Arguments and options that several verbs share."""

from __future__ import annotations

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
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where to write.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
