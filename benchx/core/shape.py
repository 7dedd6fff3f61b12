"""Whether data from a file is what the fields of its dataclass say, told by the path to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SHOWN = 40


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
