"""One JSON text per value, the same on every machine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

Plain = str | int | float | bool | list["Plain"] | dict[str, "Plain"] | None
"""What JSON can hold."""


def plain(value: object) -> Plain:
    """JSON-ready data: NaN and infinities become null (undefined), unknown objects their text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


def to_line(value: object) -> str:
    """One line of JSON without its newline; keys sorted."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
