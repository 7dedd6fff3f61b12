"""An axis value as written -> the value that is stored, by the axis' type and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchx.core.axes import LENGTHS_EXPECTED, AxisSpec, Scalar, format_lengths, parse_lengths
from benchx.core.errors import nearest_word
from benchx.core.units import LARGEST_COUNT, UnitError, parse_bytes, parse_count


class ValueProblem(UnitError):
    """A value that an axis can't take.

    Args:
        value: What was given.
        expected: What would have been right.
        nearest: The choice that looks most like it.
    """

    def __init__(self, value: object, expected: str, nearest: str | None = None) -> None:
        super().__init__(value, expected)
        self.nearest = nearest


def axis_value(spec: AxisSpec, value: Scalar) -> Scalar:
    """The canonical value: plain numbers, `128k` resolved, lengths as `8x1024`.

    Raises:
        UnitError: When the value is not of the axis' type or not within its limits.
    """
    stored = _BY_TYPE[spec.type](spec, value)
    if spec.choices and stored not in spec.choices:
        choices = [str(choice) for choice in spec.choices]
        near = nearest_word(str(stored), choices)
        raise ValueProblem(value, f"one of {', '.join(choices)}", near)
    return stored


def _int(spec: AxisSpec, value: Scalar) -> int:
    return _whole(spec, value, f"a whole number{_at_least(spec)}", "8192 or 128k")


def _bytes(spec: AxisSpec, value: Scalar) -> int:
    """A size with its unit, or a number of bytes (`4096`, `4k`)."""
    expected, examples = f"a size in bytes{_at_least(spec)}", "64KiB, 2GiB or 4k"
    if isinstance(value, str) and value.rstrip().endswith("B"):
        try:
            return _whole(spec, parse_bytes(value), expected, examples)
        except UnitError as error:
            raise UnitError(value, f"{expected}, such as {examples}") from error
    return _whole(spec, value, expected, examples)


def _whole(spec: AxisSpec, value: Scalar, expected: str, examples: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UnitError(value, expected)
    try:
        whole = parse_count(value) if isinstance(value, str) else value
    except UnitError as error:
        raise UnitError(value, f"{expected}, such as {examples}") from error
    if not abs(whole) <= LARGEST_COUNT or (spec.minimum is not None and whole < spec.minimum):
        raise UnitError(value, expected)
    return whole


def _float(spec: AxisSpec, value: Scalar) -> float:
    expected = f"a number{_at_least(spec)}"
    if isinstance(value, bool | str):
        raise UnitError(value, expected)
    number = float(value)
    if spec.minimum is not None and number < spec.minimum:
        raise UnitError(value, expected)
    return number + 0.0  # -0.0 and 0.0 are one value and must be one point


def _bool(_spec: AxisSpec, value: Scalar) -> bool:
    if not isinstance(value, bool):
        raise UnitError(value, "true or false")
    return value


def _str(_spec: AxisSpec, value: Scalar) -> str:
    if not isinstance(value, str):
        raise UnitError(value, "a word")
    return value


def _lengths(spec: AxisSpec, value: Scalar) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UnitError(value, LENGTHS_EXPECTED)
    lengths = parse_lengths(value)
    if spec.minimum is not None and min(lengths) < spec.minimum:
        raise UnitError(value, f"lengths{_at_least(spec)} each")
    return format_lengths(lengths)


def _at_least(spec: AxisSpec) -> str:
    return "" if spec.minimum is None else f" of at least {spec.minimum:g}"


_BY_TYPE: Mapping[str, Callable[[AxisSpec, Scalar], Scalar]] = {
    "int": _int,
    "bytes": _bytes,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "lengths": _lengths,
}
