"""Copies: bandwidth over the size of a block, which lines share a panel, and how they look."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchx.reporting.chart_canvas import themed
from benchx.reporting.chart_sizes import LINES_PER_PANEL, Sizes, size_styles, sizes_of
from benchx.reporting.document import Section
from benchx.reporting.figures import plan_figures
from benchx.reporting.theme import styles_for

RowMaker = Callable[..., list[dict[str, Any]]]
CopyMaker = Callable[..., Section]
KIB, MIB = 2**10, 2**20
IN_ORDER = {"layout": "contiguous", "pinned": True, "total_bytes": 256 * MIB}
SIZES = (4 * KIB, 64 * KIB, MIB)


def copies(route: str, **changes: str | int | bool) -> list[dict[str, Any]]:
    """A point per size."""
    axes = {**IN_ORDER, "route": route, **changes}
    return [{"block_bytes": size, **axes} for size in SIZES]


@pytest.fixture
def copies_of(make_rows: RowMaker, section_of: Callable[..., Section]) -> CopyMaker:
    """A section of copies, whose work has bytes but neither FLOPs nor tokens."""

    def build(
        points: Sequence[Mapping[str, Any]], times_ms: Mapping[str, Sequence[float | str]]
    ) -> Section:
        rows = make_rows("any_copy", points, times_ms, run_id="r", leaves_kv=False)
        for row in rows:
            if row["outcome"] != "ok":
                row["bandwidth_gb_s"] = 1.0  # what did not end well must not be drawn
            else:
                row |= {"compute_tflop_s": None, "token_throughput_tok_s": None}
                row["bandwidth_gb_s"] = row["total_bytes"] / row["device_time_ms_p50"] / 1e6
        return section_of(rows)

    return build


def planned(section: Section) -> Sizes:
    plan = sizes_of(section.frame)
    assert plan is not None
    return plan


def drawn(section: Section) -> Figure:
    (plan,) = plan_figures(section, styles_for(["blocks", "packed"])).plans
    with themed():
        figure = plan.build()
        figure.draw_without_rendering()
    return figure


def legend(axes: Axes) -> list[str]:
    found = axes.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def first_line(axes: Axes) -> tuple[list[float], list[float]]:
    """Its x and its y."""
    x, y = np.asarray(axes.get_lines()[0].get_data(), dtype=float)
    return x.tolist(), y.tolist()


def footer(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in figure.texts).split())


def test_copies_get_bandwidth_and_neither_rows_of_times_nor_a_speed_up(
    copies_of: CopyMaker,
) -> None:
    section = copies_of(copies("in"), {"blocks": [4.0, 2.0, 1.0], "packed": [1.0, 1.0, 1.0]})
    figures = plan_figures(section, styles_for(["blocks", "packed"]))
    assert [plan.name for plan in figures.plans] == ["any-copy-bandwidth"]


@pytest.mark.parametrize("rate", ["compute_tflop_s", "token_throughput_tok_s"])
def test_work_with_flops_or_tokens_keeps_its_device_times(copies_of: CopyMaker, rate: str) -> None:
    section = copies_of(copies("in"), {"blocks": [4.0, 2.0, 1.0]})
    assert sizes_of(section.frame) is not None
    assert sizes_of(section.frame.assign(**{rate: 1.0})) is None


def test_without_a_size_that_varies_there_is_no_bandwidth_figure(copies_of: CopyMaker) -> None:
    points = [{**IN_ORDER, "block_bytes": MIB, "route": route} for route in ("in", "out")]
    assert sizes_of(copies_of(points, {"blocks": [1.0, 2.0]}).frame) is None


def test_a_line_holds_the_bandwidth_of_its_route_over_the_size(copies_of: CopyMaker) -> None:
    section = copies_of(copies("in") + copies("out"), {"blocks": [4.0, 2.0, 1.0, 8.0, 8.0, 8.0]})
    (axes,) = drawn(section).axes
    assert legend(axes) == ["in", "out"]
    sizes, rates = first_line(axes)
    assert sizes == list(SIZES)
    assert rates == pytest.approx([256 * MIB / ms / 1e6 for ms in (4.0, 2.0, 1.0)])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4k", "64k", "1M"]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "block, bytes (k = 1024)"


def test_bars_are_the_interval_of_the_time_turned_into_rates(copies_of: CopyMaker) -> None:
    section = copies_of(copies("in"), {"blocks": [4.0, 2.0, 1.0]})
    (axes,) = drawn(section).axes
    (bars,) = (one for one in axes.collections if hasattr(one, "get_segments"))
    low, high = bars.get_segments()[0][:, 1]
    rate = 256 * MIB / 4.0 / 1e6  # the fixture's interval: 0.2 % below, 0.3 % above the median
    assert (low, high) == pytest.approx((rate / 1.003, rate / 0.998))


def test_a_point_that_is_not_ok_is_a_gap_and_is_counted_below(copies_of: CopyMaker) -> None:
    times: dict[str, list[float | str]] = {"blocks": [4.0, "oom: memory", 1.0, *["skipped: x"] * 3]}
    figure = drawn(copies_of(copies("in") + copies("out"), times))
    (axes,) = figure.axes
    assert [math.isnan(rate) for rate in first_line(axes)[1]] == [False, True, False]
    assert legend(axes) == ["in"]
    assert "in: oom at 1 of 3 points; out: skipped at 3 of 3 points" in footer(figure)


def test_each_layout_has_a_panel_and_lines_by_route_and_backend(copies_of: CopyMaker) -> None:
    points = copies("in") + copies("in", layout="gather") + copies("out", layout="gather")
    ok = [1.0] * 3
    section = copies_of(points, {"blocks": ok * 3, "packed": ["unsupported: x"] * 3 + ok * 2})
    first, second = drawn(section).axes
    assert first.get_title(loc="left") == "contiguous, 256 MiB a call"
    assert second.get_title(loc="left") == "gather, 256 MiB a call"
    assert legend(second) == ["in, blocks", "in, packed", "out, blocks", "out, packed"]


def test_lines_share_a_panel_when_measured_at_the_same_sizes_or_some_of_them(
    copies_of: CopyMaker,
) -> None:
    lone = [{"block_bytes": MIB, **IN_ORDER, "route": "in", "pinned": False}]
    points = copies("in") + lone + copies("file", total_bytes=64 * MIB)
    panels = planned(copies_of(points, {"blocks": [1.0] * 7})).panels
    assert [[line.name for line in panel.lines] for panel in panels] == [
        ["in", "in, not pinned"], ["file"]
    ]  # fmt: skip
    assert [panel.title for panel in panels] == ["256 MiB a call", "64 MiB a call"]


def test_a_point_alone_is_a_marker_in_the_legend_too(copies_of: CopyMaker) -> None:
    lone = [{"block_bytes": MIB, **IN_ORDER, "route": "in", "pinned": False}]
    (axes,) = drawn(copies_of(copies("in") + lone, {"blocks": [1.0] * 4})).axes
    found = axes.get_legend()
    assert found is not None
    assert [line.get_linestyle() for line in found.get_lines()] == ["-", "None"]


def test_many_lines_are_spread_over_panels_and_can_be_told_apart(copies_of: CopyMaker) -> None:
    points = [point for number in range(20) for point in copies(f"route{number}")]
    panels = planned(copies_of(points, {"blocks": [1.0] * 60})).panels
    assert [len(panel.lines) for panel in panels] == [6, 6, 6, 2]
    styles = size_styles(panels)
    for panel in panels:
        assert len(panel.lines) <= LINES_PER_PANEL
        for one, other in itertools.combinations([styles[line.key] for line in panel.lines], 2):
            assert one.colour != other.colour
            assert one.marker != other.marker


def test_a_line_that_returns_meets_no_line_of_its_own_looks(copies_of: CopyMaker) -> None:
    points = [point for number in range(7) for point in copies(f"route{number}")]
    points += copies("route0", layout="gather") + copies("other", layout="gather")
    panels = planned(copies_of(points, {"blocks": [1.0] * 27})).panels
    styles = size_styles(panels)
    returned, other = (styles[line.key] for line in panels[-1].lines)
    assert returned == styles[panels[0].lines[0].key]
    assert other.colour != returned.colour
    assert other.marker != returned.marker


def test_a_line_looks_the_same_in_every_panel(copies_of: CopyMaker) -> None:
    points = copies("a") + copies("b") + copies("b", layout="gather") + copies("a", layout="gather")
    first, second = drawn(copies_of(points, {"blocks": [1.0] * 12})).axes
    looks = [
        {name: line.get_marker() for name, line in zip(legend(axes), lines, strict=True)}
        for axes, lines in ((one, _handles(one)) for one in (first, second))
    ]
    assert looks[0] == looks[1]
    assert len(set(looks[0].values())) == 2


def _handles(axes: Axes) -> list[Any]:
    found = axes.get_legend()
    assert found is not None
    return list(found.get_lines())


def test_no_text_leaves_the_picture_of_copies(copies_of: CopyMaker) -> None:
    points = [point for route in ("x" * 20, "y" * 20) for point in copies(route, pinned=False)]
    points += copies("in")
    figure = drawn(copies_of(points, {"blocks": [1.0] * 9}))
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= width + 0.01
    assert box.y1 <= height + 0.01
