"""Plain data from a file -> the dataclass instance it was written from, or where it differs."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from functools import cache
from types import GenericAlias
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from benchx.core.record import LaunchRecord

ValueT = TypeVar("ValueT")

_SHOWN = 40

_FOLDED = ("point",)
"""Fields whose own fields stand beside their neighbours in a file: no step of a path there."""

# Pydantic error type -> what would have been right; others say it well themselves.
_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "text",
    "tuple_type": "a list",
}


def restored(data: Mapping[str, Any], form: type[ValueT]) -> ValueT:
    """The instance of a dataclass that data from JSON describes, checked all the way down.

    Nothing is converted but what JSON lacks: a list becomes a tuple, a word a member of an `Enum`,
    a whole number a float. A field that is unknown, missing or of another type is an error, and so
    is a number that is not finite.

    Raises:
        ValueError: The first difference: the path to it, what it holds, what it should.
    """
    try:
        value: ValueT = _adapter(cast("Hashable", form)).validate_json(
            json.dumps([data]), strict=True
        )[0]
    except ValidationError as error:
        raise ValueError(_told(error.errors(include_url=False)[0])) from error
    return value


def restored_record(data: Mapping[str, Any]) -> LaunchRecord:
    """A record; a value that was not finite was written as null and is absent here."""
    defined = {name: _defined(data[name]) for name in ("values", "samples") if name in data}
    return restored({**data, **defined}, LaunchRecord)


def _defined(data: object) -> object:
    if isinstance(data, Mapping):
        return {name: _defined(value) for name, value in data.items() if value is not None}
    if isinstance(data, list | tuple):
        return [value for value in data if value is not None]
    return data


@cache
def _adapter(form: Hashable) -> TypeAdapter[list[Any]]:
    """Of a list, as pydantic takes a configuration for those, and applies it to what they hold."""
    listed: Any = GenericAlias(list, (form,))
    return TypeAdapter(listed, config=ConfigDict(extra="forbid", allow_inf_nan=False))


def _told(problem: ErrorDetails) -> str:
    kind, path = problem["type"], ".".join(map(str, filter(_is_in_file, problem["loc"][1:])))
    if kind == "missing":
        return f"{path}: missing"
    if kind == "unexpected_keyword_argument":
        return f"{path}: no field of that name is known"
    if kind == "value_error":  # said by the dataclass itself
        said = str(problem["ctx"]["error"])
        return f"{path}: {said}" if path else said
    shown = repr(problem["input"])
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    expected = _EXPECTED.get(kind) or problem["msg"].removeprefix("Input should be ")
    return f"{path}: got {shown}, expected {expected}"


def _is_in_file(step: str | int) -> bool:
    return step not in _FOLDED
