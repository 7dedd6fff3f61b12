"""Short names for points: an axis that never varies within a part needs no mention."""

from __future__ import annotations

from collections.abc import Iterable

from benchx.core.axes import Scalar
from benchx.core.point import Point


class Labels:
    """Names points by operator, backend and the axes that vary within their part.

    Args:
        points: All points that will be named.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        values: dict[tuple[int, str], set[Scalar]] = {}
        for point in points:
            for axis, value in point.params.items():
                values.setdefault((point.part, axis), set()).add(value)
        self._varying = {key for key, seen in values.items() if len(seen) > 1}

    def varying(self, point: Point) -> list[str]:
        """The axes that vary within the point's part."""
        return [axis for axis in point.params if (point.part, axis) in self._varying]

    def of(self, point: Point) -> str:
        """`kda_prefill/chunked heads=96 seqlens=8192`."""
        words = [f"{axis}={yaml_word(point.params[axis])}" for axis in self.varying(point)]
        return " ".join([f"{point.subject}/{point.backend}", *words])


def counted(count: int, noun: str) -> str:
    """`1 point`, `3 launches`."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def yaml_word(value: Scalar) -> str:
    """A value as a scenario would have it: `true`, not `True`; `-5`, not `-5.0`; `''`."""
    if isinstance(value, bool):
        return str(value).lower()
    if value == "":
        return "''"
    return f"{value:g}" if isinstance(value, float) else str(value)
