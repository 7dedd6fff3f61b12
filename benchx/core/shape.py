"""Whether data from a file is what the fields of its dataclass say, told by the path to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SHOWN = 40


def check_fields(data: Mapping[str, Any], kind: type) -> None:
    """Compare data from JSON with the fields of the dataclass that is to be made of it.

    It looks at names, lists, mappings and words of a choice, which is what making it can trip over;
    `check_shape` looks at the rest of what was made.

    Raises:
        ValueError: The first field that is missing, that is none, or that differs: its name, and
            what it holds and should.
    """
    known = {field.name: field for field in fields(kind) if field.init}
    for name, value in data.items():
        if name not in known:
            raise ValueError(f"{name}: no field of that name is known")
        if value is not None or _is_needed(known[name]):
            _check_form(value, _hints(kind)[name], name)
    for name, field in known.items():
        if name not in data and _is_needed(field):
            raise ValueError(f"{name}: missing")


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _check_form(value: object, hint: Any, path: str) -> None:  # noqa: ANN401 - an annotation
    options = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    option = next((one for one in options if one is not type(None)), hint)
    origin = get_origin(option) or option
    if origin is tuple and not isinstance(value, list):
        raise ValueError(_told(value, path, "list"))
    if isinstance(origin, type) and issubclass(origin, Enum):
        words = [member.value for member in origin]
        if value not in words:
            raise ValueError(_told(value, path, f"one of {', '.join(map(str, words))}"))
    if is_dataclass(origin) or origin is Mapping:
        if not isinstance(value, Mapping):
            raise ValueError(_told(value, path, "mapping"))
        if isinstance(origin, type) and is_dataclass(origin):
            _check_inner(value, origin, path)


def _check_inner(value: Mapping[str, Any], kind: type, path: str) -> None:
    try:
        check_fields(value, kind)
    except ValueError as error:
        raise ValueError(f"{path}.{error}") from error


def check_shape(value: object) -> None:
    """Compare every field of a dataclass instance with its annotation, all the way down.

    Python itself does not, and a word in the place of a number would surface far from the file
    that it was read from. An `int` does where a `float` is asked for, a `bool` for neither, and no
    number is NaN or infinite.

    Raises:
        ValueError: The first field that differs: its path, what it holds, what it should.
    """
    problem = _misfit(value, type(value), "")
    if problem is not None:
        raise ValueError(problem)


def _misfit(value: object, hint: Any, path: str) -> str | None:  # noqa: ANN401 - an annotation
    origin, options = get_origin(hint), get_args(hint)
    if hint is Any:
        return None
    if origin in (UnionType, Union):
        problems = [_misfit(value, option, path) for option in options]
        return None if None in problems else problems[0]
    if origin is Literal:
        return None if value in options else _told(value, path, " or ".join(map(repr, options)))
    if not isinstance(value, _kinds(origin or hint)) or _is_no_number(value, hint):
        return _told(value, path, getattr(origin or hint, "__name__", str(hint)).lower())
    return next(filter(None, (_misfit(*part) for part in _parts(value, options, path))), None)


def _parts(value: object, options: tuple[Any, ...], path: str) -> list[tuple[object, object, str]]:
    """What a value consists of, each with its annotation and its path."""
    prefix = f"{path}." if path else ""
    if is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        names = [field.name for field in fields(value)]
        return [(getattr(value, name), hints[name], f"{prefix}{name}") for name in names]
    if isinstance(value, Mapping) and options:
        items = [(item, options[1], f"{prefix}{key}") for key, item in value.items()]
        return [*((key, options[0], path) for key in value), *items]
    if isinstance(value, tuple) and options:
        return [(item, options[0], f"{prefix}{index}") for index, item in enumerate(value)]
    return []


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _kinds(hint: type) -> tuple[type, ...]:
    return (int, float) if hint is float else (hint,)


def _is_no_number(value: object, hint: object) -> bool:
    if isinstance(value, bool):
        return hint in (int, float)
    return isinstance(value, float) and not math.isfinite(value)


def _told(value: object, path: str, expected: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"{path or 'the whole'}: got {shown}, expected {expected}"
