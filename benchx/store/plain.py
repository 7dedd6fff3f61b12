"""One JSON text per value, the same on every machine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import orjson

Plain = str | int | float | bool | list["Plain"] | dict[str, "Plain"] | None
"""What JSON can hold."""


def plain(value: object) -> Plain:
    """JSON-ready data: NaN and infinities become null (undefined), unknown objects their text."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_NON_STR_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)


def to_line(value: object) -> bytes:
    """One line of JSON without its newline, of what `plain` makes of a value; keys sorted.

    A request holds the arrival of every token, so this is not done value by value in Python:
    `plain` is asked only for what orjson does not know (mappings that are no dict, kinds of float,
    objects).
    """
    try:
        return orjson.dumps(value, default=plain, option=_OPTIONS)
    except orjson.JSONEncodeError:  # an int beyond 64 bits
        return json.dumps(plain(value), sort_keys=True, separators=(",", ":")).encode()
