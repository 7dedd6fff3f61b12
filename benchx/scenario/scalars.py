"""Plain scalars by the YAML 1.2 core schema: `1:30`, `yes` and `0x10` are words, not surprises."""

from __future__ import annotations

import math
import re

from benchx.core.axes import Scalar
from benchx.core.units import UnitError

_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def resolve_scalar(text: str) -> Scalar | None:
    """What an unquoted scalar means.

    Raises:
        UnitError: For numbers that nothing here can use: NaN, infinities, more than 20 digits.
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        # Longer than any count; int() itself refuses 4300 digits.
        if len(text) > 20:
            raise UnitError(text, "a number of at most 20 digits")
        return int(text)
    if _NOT_FINITE.fullmatch(text):
        raise UnitError(text, "a finite number")
    if _FLOAT.fullmatch(text):
        return _finite(text)
    return text


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise UnitError(text, "a finite number")
    return number
