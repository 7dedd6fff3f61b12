"""Rows of dots: speed-ups and shares of the roofline, to scale and beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchx.reporting.document import Section
from benchx.reporting.figures import plan_figures
from benchx.reporting.theme import styles_for

RowMaker = Callable[..., list[dict[str, Any]]]
SectionMaker = Callable[..., Section]
Drawn = Callable[[Section, str], Figure]
BATCHES = [{"heads": 96, "batch": batch} for batch in (1, 2, 4)]


def section_with(
    make_rows: RowMaker, section_of: SectionMaker, times: dict[str, Any], **changes: object
) -> Section:
    rows = make_rows("kda_decode", BATCHES, times, run_id="r", leaves_kv=False)
    return section_of([row | changes for row in rows])


def upright(axes: Axes) -> list[float]:
    """Where vertical lines stand."""
    lines = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "None"]
    return [xs[0] for xs in lines if len(xs) == 2 and xs[0] == xs[1]]


def said(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in figure.texts).split())


SLOW = {"base": [1.0, 1.0, 1.0], "near": [1.1, 1.2, 1.1], "slow": [2.0, 50.0, 160.0]}


def test_a_speed_up_far_below_the_others_is_written_at_the_edge_and_does_not_stretch_the_scale(
    drawn: Drawn, make_rows: RowMaker, section_of: SectionMaker
) -> None:
    figure = drawn(section_with(make_rows, section_of, SLOW), "speed-up")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["←", "0.0200", "←", "0.00625"]
    assert axes.get_xlim()[0] > 0.3
    assert min(axes.get_xticks()) >= 0.45
    assert "Arrows: below 0.25, off the scale." in said(figure)


def test_where_all_speed_ups_are_small_they_are_drawn_to_scale(
    drawn: Drawn, make_rows: RowMaker, section_of: SectionMaker
) -> None:
    times = {"base": [1.0, 1.0, 1.0], "slow": [10.0, 50.0, 160.0]}
    figure = drawn(section_with(make_rows, section_of, times), "speed-up")
    assert not figure.axes[0].texts
    assert figure.axes[0].get_xlim()[0] < 0.00625
    assert "Arrows" not in said(figure)


def test_a_mean_next_to_one_or_beyond_the_scale_has_no_line(
    drawn: Drawn, make_rows: RowMaker, section_of: SectionMaker
) -> None:
    times = {"base": [1.0] * 3, "equal": [1.02] * 3, "near": [1.25] * 3, "slow": [9.0] * 3}
    (axes,) = drawn(section_with(make_rows, section_of, times), "speed-up").axes
    start, *lines = upright(axes)
    assert start < 0.8
    assert lines == pytest.approx([1.0, 0.8])


def test_shares_of_the_roofline_are_in_percent_on_an_axis_from_0_to_100(
    drawn: Drawn, make_rows: RowMaker, section_of: SectionMaker
) -> None:
    times = {"a": [1.0, 2.0, 4.0], "b": [0.5, 1.0, 2.0]}
    figure = drawn(section_with(make_rows, section_of, times), "roofline-share")
    (axes,) = figure.axes
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim() == pytest.approx((0, 102))
    points = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    assert points == [pytest.approx([25.0, 12.5, 6.25])]  # 1e9 bytes at 4e12 bytes/s / time
    assert "least time by the measured ceilings / device time" in said(figure)


def test_a_share_above_the_roofline_stays_visible(
    drawn: Drawn, make_rows: RowMaker, section_of: SectionMaker
) -> None:
    times = {"a": [0.2, 2.0, 4.0]}
    (axes,) = drawn(section_with(make_rows, section_of, times), "roofline-share").axes
    assert axes.get_xlim()[1] > 125


@pytest.mark.parametrize(
    "changes", [{"roofline_share": None}, {"kind": "model", "phase": "decode"}]
)
def test_there_is_no_chart_of_shares_where_none_is_known_or_of_models(
    make_rows: RowMaker, section_of: SectionMaker, changes: dict[str, Any]
) -> None:
    section = section_with(make_rows, section_of, {"a": [1.0, 2.0, 4.0]}, **changes)
    plans = plan_figures(section, styles_for(["a"])).plans
    assert not [plan.name for plan in plans if plan.name.endswith("roofline-share")]
