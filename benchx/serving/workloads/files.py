"""Reading data files: JSON, JSONL and CSV, with the file and line in every complaint."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchx.core.errors import UsageError


def json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line number, object) of a JSONL file; empty lines are left out."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            yield number, _object(path, number, line)


def json_list(path: Path) -> list[Any]:
    """The list that a JSON file holds."""
    with _opened(path) as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, list):
        raise UsageError(f"{path}: expected a list, got {type(content).__name__}")
    return content


def csv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """(line number, row) of a CSV file that must have these columns."""
    with _opened(path) as file:
        reader = csv.DictReader(file)
        absent = [name for name in columns if name not in (reader.fieldnames or ())]
        if absent:
            raise UsageError(f"{path}:1: no column {absent[0]!r}; expected {', '.join(columns)}")
        for row in reader:
            yield reader.line_num, row


def whole(path: Path, line: int, row: Mapping[str, Any], name: str) -> int:
    """A count of tokens in a row; raises UsageError with the place when it is none."""
    value = row.get(name)
    try:
        number = int(float(value)) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise UsageError(f"{path}:{line}: {name}: got {value!r}; expected a whole number")
    return number


def _object(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        content = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}:{number}: expected an object, got {type(content).__name__}")
    return content


def _opened(path: Path) -> Any:  # noqa: ANN401 - a text file
    try:
        return path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
