"""Where the label of each point goes, so that none lies on a point or on another label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SIZE_PT = 7.0
"""Of the letters."""

_LETTER_PT = 0.6 * SIZE_PT
_MARKER_PT = 3.5
"""Half of a marker, its edge included."""

_GAP_PT = 3.0


@dataclass(frozen=True)
class Place:
    """Offset of a label from its point, in points, and its alignment there."""

    dx_pt: float
    dy_pt: float
    ha: str
    va: str


PLACES = (
    Place(_GAP_PT + 1, _GAP_PT, "left", "bottom"),
    Place(-_GAP_PT - 1, _GAP_PT, "right", "bottom"),
    Place(_GAP_PT + 1, -_GAP_PT, "left", "top"),
    Place(-_GAP_PT - 1, -_GAP_PT, "right", "top"),
)
"""In the order in which they are tried."""


@dataclass(frozen=True)
class Box:
    """A rectangle on the page, in points."""

    left: float
    bottom: float
    right: float
    top: float

    def area_shared(self, other: Box) -> float:
        """Area that lies in both, in square points."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(width, 0.0) * max(height, 0.0)


def place_labels(points_pt: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[Place]:
    """A place for each label: the first of `PLACES` that is free, else the one least covered.

    Args:
        points_pt: Where the points are on the page, in points.
        texts: The labels, one per point.
    """
    taken = [_box(x, y, Place(0, 0, "center", "center"), 2 * _MARKER_PT, 2 * _MARKER_PT)
             for x, y in points_pt]  # fmt: skip
    chosen: list[Place] = []
    for point, text in zip(points_pt, texts, strict=True):
        boxes = [label_box(point, text, place) for place in PLACES]
        covered = [sum(box.area_shared(other) for other in taken) for box in boxes]
        best = covered.index(min(covered))
        chosen.append(PLACES[best])
        taken.append(boxes[best])
    return chosen


def label_box(point_pt: tuple[float, float], text: str, place: Place) -> Box:
    """What a label covers there, roughly: all letters are taken to be equally wide."""
    return _box(*point_pt, place, _LETTER_PT * len(text), SIZE_PT)


def _box(x: float, y: float, place: Place, width: float, height: float) -> Box:
    across = {"left": 0.0, "center": 0.5, "right": 1.0}[place.ha] * width
    up = {"bottom": 0.0, "center": 0.5, "top": 1.0}[place.va] * height
    left, bottom = x + place.dx_pt - across, y + place.dy_pt - up
    return Box(left, bottom, left + width, bottom + height)
