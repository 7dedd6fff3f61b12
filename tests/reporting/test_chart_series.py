"""Colours stand for the one word that varies where there is a single backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.figure import Figure

from benchx.reporting.chart_layout import lines_of
from benchx.reporting.chart_series import series_of
from benchx.reporting.document import Section

Drawn = Callable[[Section, str], Figure]

PATTERNS = ("own", "all_mla")
POINTS = [
    {"batch": batch, "context": context, "pattern": pattern}
    for batch in (1, 16)
    for pattern in PATTERNS
    for context in (1024, 4096, 16384)
]
TIMES = [1.0, 1.1, 1.2, 0.9, 1.1, 1.4] * 2


@pytest.fixture(name="section_with")
def section_with_fixture(
    make_rows: Callable[..., Any], section_of: Callable[..., Section]
) -> Callable[..., Section]:
    def build(points: list[dict[str, Any]], times: dict[str, list[float]]) -> Section:
        rows = make_rows("tiny-9b", points, times, run_id="r", leaves_kv=False)
        return section_of([row | {"kind": "model", "phase": "decode"} for row in rows])

    return build


def test_patterns_of_one_backend_are_lines_of_one_panel_per_batch(
    drawn: Drawn,
    section_with: Callable[..., Section],
) -> None:
    figure = drawn(section_with(POINTS, {"alpha": TIMES}), "device-time")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["batch 1", "batch 16"]
    for axes in figure.axes:
        assert {text.get_text() for text in axes.texts} == set(PATTERNS)
    said = " ".join(" ".join(text.get_text() for text in figure.texts).split())
    assert "Each colour a pattern; backend: alpha." in said


def test_each_panel_of_patterns_reaches_over_its_own_figures_only(
    drawn: Drawn,
    section_with: Callable[..., Section],
) -> None:
    times = [*TIMES[:6], *(100 * time for time in TIMES[6:])]
    small, large = drawn(section_with(POINTS, {"alpha": times}), "device-time").axes
    assert small.get_ylim()[1] < large.get_ylim()[0]
    assert small.get_ylim()[1] / small.get_ylim()[0] >= 1.5


def test_several_backends_keep_their_colours(section_with: Callable[..., Section]) -> None:
    section = section_with(POINTS, {"alpha": TIMES, "beta": TIMES})
    series = series_of(section.frame)
    assert series.note == ""
    assert set(series.frame["backend"]) == {"alpha", "beta"}


@pytest.mark.parametrize(
    "points",
    [
        [{"batch": batch} for batch in (1, 2)],
        [{"pattern": pattern, "gate": gate} for pattern in "ab" for gate in "cd"],
        [{"seqlens": text} for text in ("1024", "2048")],
    ],
    ids=["no words", "two kinds of words", "lengths are no words"],
)
def test_without_exactly_one_axis_of_words_the_backend_is_the_series(
    section_with: Callable[..., Section], points: list[dict[str, Any]]
) -> None:
    section = section_with(points, {"alpha": [1.0] * len(points)})
    assert series_of(section.frame).note == ""


def test_points_that_differ_in_the_series_only_share_a_row_of_dots(
    drawn: Drawn,
    section_with: Callable[..., Section],
) -> None:
    points = [
        {"seqlens": text, "pattern": pattern} for pattern in PATTERNS for text in ("8x64", "3x128")
    ]
    section = section_with(points, {"alpha": [1.0, 2.0, 3.0, 4.0]})
    assert lines_of(section.frame) is None
    (axes,) = drawn(section, "device-time").axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["8x64 tokens", "3x128 tokens"]
