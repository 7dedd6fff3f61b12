"""Finding and reading scenario files: a path, or the name of one that ships with benchx."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from benchx.core.errors import Location, ScenarioError, nearest_word
from benchx.core.units import format_bytes
from benchx.scenario.located import Located, Where, show
from benchx.scenario.reader import MAX_BYTES, read_yaml

SUFFIXES = (".yaml", ".yml")

ABSENT = "no such file"


@cache
def shipped() -> Mapping[str, Path]:
    """Name -> file of every scenario that ships with benchx, sorted by name."""
    package = find_spec("benchx_scenarios")
    folders = (package.submodule_search_locations or []) if package else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.yaml"))
    return MappingProxyType({file.stem: file for file in files})


def locate(
    path_or_name: str | Path,
    *,
    folder: Path = Path(),
    named_at: Where | None = None,
    key: str | None = None,
) -> Path:
    """The file meant by a path or by a shipped name.

    The exact name of a shipped scenario comes first, so that a folder which happens to be called
    `smoke` changes nothing (`./smoke` is the path).

    Args:
        path_or_name: As the user wrote it.
        folder: Folder that relative paths start from.
        named_at: Where it was written, for the error; None for the command line.
        key: The key that it was written under.

    Raises:
        ScenarioError: When nothing of that name exists or it is not a file.
    """
    if isinstance(path_or_name, str) and path_or_name in shipped():
        return shipped()[path_or_name]
    path = folder / path_or_name
    shown = show(str(path_or_name))
    place, prefix = (named_at, f"{shown}: ") if named_at else (shown, "")
    try:
        problem = _problem(path)
    except (OSError, ValueError) as error:  # too long a name, or a null byte in it
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ScenarioError(place, key=key, problem=f"{prefix}{reason}") from error
    if problem is None:
        return path
    raise ScenarioError(
        place,
        key=key,
        problem=f"{prefix}{problem}",
        expected="a scenario file or the name of a shipped scenario",
        nearest=_nearest(path) if problem == ABSENT else None,
        hint="benchx list scenarios" if problem == ABSENT else None,
    )


def _problem(path: Path) -> str | None:
    """Why a path is no file, or None."""
    if path.is_file():
        return None
    if path.is_dir():
        return "is a folder"
    return "is not a regular file" if path.exists() else ABSENT


def read_file(path: Path) -> Located:
    """The one document of a scenario file.

    Raises:
        ScenarioError: When it can't be read, is too large, not UTF-8, or not plain YAML.
    """
    where = Location(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ScenarioError(where, problem=f"can't be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        limit = format_bytes(MAX_BYTES)
        raise ScenarioError(where, problem=format_bytes(size), expected=f"at most {limit}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise ScenarioError(Location(path, line), problem=problem, expected="UTF-8") from error
    return read_yaml(text, where)


def _nearest(path: Path) -> str | None:
    """What a misspelt path may have meant: a shipped scenario, or a file beside it."""
    neighbours = path.parent.glob("*") if path.parent.is_dir() else ()
    files = {file.stem: file.name for file in neighbours if file.suffix in SUFFIXES}
    word = nearest_word(path.stem, [*shipped(), *files])
    return None if word is None else files.get(word, word)
