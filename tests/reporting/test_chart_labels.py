"""Labels of points keep off the points and off one another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.reporting.chart_labels import PLACES, label_box, place_labels


def test_a_point_alone_has_its_label_above_and_to_the_right() -> None:
    assert place_labels([(100, 100)], ["16"]) == [PLACES[0]]


@pytest.mark.parametrize("shift", [(5, 4), (-5, 4), (0, 6), (6, 0), (3, -5)])
def test_labels_of_points_that_nearly_touch_do_not(shift: tuple[float, float]) -> None:
    points, texts = [(100.0, 100.0), (100.0 + shift[0], 100.0 + shift[1])], ["1", "16"]
    places = place_labels(points, texts)
    first, second = (label_box(*label) for label in zip(points, texts, places, strict=True))
    assert first.area_shared(second) == 0


@given(
    st.lists(
        st.tuples(st.floats(0, 300, allow_nan=False), st.floats(0, 200, allow_nan=False)),
        max_size=12,
    )
)
def test_every_point_gets_a_place_however_crowded(points: list[tuple[float, float]]) -> None:
    assert len(place_labels(points, ["128"] * len(points))) == len(points)
