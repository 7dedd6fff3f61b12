"""Reading data files: JSON, JSONL and CSV, with the file and line in every complaint.

Files are UTF-8, with or without a byte-order mark.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import orjson

from benchx.core.errors import UsageError

_BLOCK_BYTES = 4 * 2**20


def json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line number, object) of a JSONL file; empty lines are left out."""
    for number, line in _lines(path):
        if line.strip():
            yield number, _object(path, number, line)


def json_list(path: Path) -> list[Any]:
    """The list that a JSON file holds."""
    with _opened(path) as file:
        try:
            content = json.loads(file.read())
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, list):
        raise UsageError(f"{path}: expected a list, got {type(content).__name__}")
    return content


def csv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """(line number, row) of a CSV file; each row has a value in all of these columns."""
    reader = csv.DictReader(_texts(path))
    try:
        yield from _rows(path, reader, columns)
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: not CSV: {error}") from error


def _rows(
    path: Path, reader: csv.DictReader[str], columns: tuple[str, ...]
) -> Iterator[tuple[int, Mapping[str, str]]]:
    absent = [name for name in columns if name not in (reader.fieldnames or ())]
    if absent:
        raise UsageError(f"{path}:1: no column {absent[0]!r}; expected {', '.join(columns)}")
    for row in reader:
        if short := [name for name in columns if row[name] is None]:
            raise UsageError(f"{path}:{reader.line_num}: {short[0]}: the row is too short")
        yield reader.line_num, row


def whole(path: Path, line: int, row: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    """A count of tokens in a row; raises UsageError with the place when it is none."""
    number = _number(row.get(name))
    if number is None or number != int(number) or number < least:
        raise UsageError(
            f"{path}:{line}: {name}: got {row.get(name)!r}; expected a whole number"
            + (f" of at least {least}" if least else "")
        )
    return int(number)


def real(
    path: Path, line: int, row: Mapping[str, Any], name: str, *, default: float | None = None
) -> float:
    """A finite number in a row, or the default where it is absent; raises UsageError."""
    number = _number(row.get(name, default))
    if number is None:
        raise UsageError(f"{path}:{line}: {name}: got {row.get(name)!r}; expected a number")
    return float(number)


def listed(path: Path, line: int, row: Mapping[str, Any], name: str) -> list[Any]:
    """A list in a row, empty where it is absent; raises UsageError when it is none."""
    found = row.get(name, [])
    if not isinstance(found, list):
        raise UsageError(f"{path}:{line}: {name}: got {found!r}; expected a list")
    return found


def objects(path: Path, line: int, row: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of objects in a row; raises UsageError when it is none."""
    found = listed(path, line, row, name)
    if odd := [one for one in found if not isinstance(one, dict)]:
        raise UsageError(f"{path}:{line}: {name}: it holds {odd[0]!r}; expected objects only")
    return found


def _number(value: object) -> float | None:
    """A finite number, also one that is written out (CSV); None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _object(path: Path, number: int, line: bytes) -> Mapping[str, Any]:
    # Not by `json`: that reads half of a character (a lone surrogate), which can't be sent.
    try:
        content = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}:{number}: expected an object, got {type(content).__name__}")
    return content


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(line number, bytes) of each line, read in blocks: a file may be larger than memory.

    It is open only while a block is read, so that whoever stops early leaves no open file.
    """
    place = number = 0
    while True:
        with _opened(path) as file:
            file.seek(place)
            block = file.readlines(_BLOCK_BYTES)
            place = file.tell()
        if not block:
            return
        for line in block:
            number += 1
            yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def _texts(path: Path) -> Iterator[str]:
    for number, line in _lines(path):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}:{number}: not UTF-8: {error}") from error


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
