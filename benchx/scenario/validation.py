"""Pydantic's complaints as one line about one place in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from benchx.core.errors import Location, ScenarioError, nearest_word
from benchx.core.units import UnitError
from benchx.scenario.located import Located, Steps, dotted, show
from benchx.scenario.secret_words import HIDDEN, SecretGiven, is_secret

ModelT = TypeVar("ModelT", bound=BaseModel)

# Pydantic error type -> what would have been right; {} takes values from the error's context.
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping (key: value lines)",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "at least {ge}",
    "int_type": "a whole number",
    "less_than": "a number below {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "model_type": "a mapping (key: value lines)",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_type": "a word",
    "too_short": "at least {min_length} in it",
    "tuple_type": "a list",
}


def validated(model: type[ModelT], data: Located) -> ModelT:
    """The model's instance for located data.

    Raises:
        ScenarioError: About the first thing wrong, in the order of the file.
    """
    try:
        return model.model_validate(data.plain())
    except ValidationError as error:
        raise _translate(model, data, min(error.errors(), key=_urgency(data))) from error


def _urgency(data: Located) -> Callable[[ErrorDetails], tuple[bool, int]]:
    """Unknown keys first (a misspelt one is missing too), then the order of the file."""

    def urgency(details: ErrorDetails) -> tuple[bool, int]:
        place = data.at(details["loc"]).where
        line = place.line or 0 if isinstance(place, Location) else 0
        return details["type"] != "extra_forbidden", line

    return urgency


def _translate(model: type[BaseModel], data: Located, details: ErrorDetails) -> ScenarioError:
    path: tuple[str | int, ...] = details["loc"]
    kind, context = details["type"], details.get("ctx", {})
    parent = _model_at(model, path[:-1])
    known = _fields(parent) if parent else {}
    expected, near = f"one of {', '.join(known)}", None
    if kind == "missing":
        problem, expected = "missing", known[str(path[-1])].description or "a value"
    elif kind == "extra_forbidden":
        problem = f"unknown key (value {_shown(details['input'], data, path)})"
        near = nearest_word(str(path[-1]), known)
    elif isinstance(cause := context.get("error"), SecretGiven):
        problem, expected = f"got {show(cause.value)}", cause.expected
    elif isinstance(cause, UnitError):
        problem, expected = f"got {_shown(cause.value, data, path)}", cause.expected
    else:
        problem = f"got {_shown(details['input'], data, path)}"
        expected = _expected(kind, context, details["msg"])
        if kind == "literal_error":
            near = nearest_word(str(details["input"]), re.findall(r"'([^']*)'", expected))
    return ScenarioError(
        data.at(path).where,
        key=_key(data, path),
        problem=problem,
        expected=expected,
        nearest=near,
    )


def _shown(value: object, data: Located, path: Steps) -> str:
    """A value for a message, unless it may be a secret."""
    is_hidden = HIDDEN in str(data.at(path).where) or any(is_secret(str(step)) for step in path)
    return HIDDEN if is_hidden and not isinstance(value, Mapping) else show(value)


def _expected(kind: str, context: Mapping[str, Any], message: str) -> str:
    """In our words; pydantic's own message is no template, it may hold braces (a pattern)."""
    words = _EXPECTED.get(kind)
    return message if words is None else words.format(**context)


def _key(data: Located, path: tuple[str | int, ...]) -> str | None:
    """The path as written: a bare value in the place of a list has no position."""
    while path and isinstance(path[-1], int) and data.at(path) is data.at(path[:-1]):
        path = path[:-1]
    return dotted(path) or None


def _model_at(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The model of the mapping at `path`; None where keys are free (axes)."""
    for step in path:
        annotation = {key: field.annotation for key, field in _fields(model).items()}.get(str(step))
        inner = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
        models = [one for one in inner if issubclass(one, BaseModel)]
        if not models:
            return None
        model = models[0]
    return model


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Key in the file -> field."""
    return {field.alias or name: field for name, field in model.model_fields.items()}
