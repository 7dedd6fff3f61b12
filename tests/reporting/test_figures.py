"""Which figures there are, what they hold, and that they can be told apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import colors
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchx.reporting.chart_canvas import themed, write_figure
from benchx.reporting.chart_layout import categories_of, lines_of, scaling_of
from benchx.reporting.chart_scales import log_ticks, spaced_ticks
from benchx.reporting.document import Section, build_document
from benchx.reporting.figures import FigureList, FigurePlan, plan_figures
from benchx.reporting.kv_rate import kv_rates
from benchx.reporting.theme import styles_for
from benchx.store import Run

RowMaker = Callable[..., list[dict[str, Any]]]
SectionMaker = Callable[..., Section]
BATCHES = [{"heads": 8, "batch": batch} for batch in (1, 2, 4)]


def figures_of(run: Run) -> FigureList:
    document = build_document([run])
    return plan_figures(document.sections[0], document.styles)


def drawn(plan: FigurePlan) -> Figure:
    with themed():
        return plan.build()


def texts(figure: Figure) -> str:
    from matplotlib.text import Text

    return "\n".join(artist.get_text() for artist in figure.findobj(Text))


def names(figures: FigureList) -> list[str]:
    return [plan.name for plan in figures.plans]


def test_a_prefill_with_mixed_batches_gets_rows_of_dots_speed_up_and_rooflines(
    prefill_run: Run,
) -> None:
    found = names(figures_of(prefill_run))
    assert found == [
        "kda-prefill-device-time",
        "kda-prefill-speed-up",
        "kda-prefill-roofline-share",
        "kda-prefill-roofline",
    ]


def test_without_an_ok_point_there_is_no_figure_but_a_line(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    section = section_of(make_rows("kda_decode", BATCHES, {"a": ["oom: memory"] * 3}, run_id="r"))
    figures = plan_figures(section, styles_for(["a"]))
    assert figures.plans == ()
    assert figures.omissions == ("KDA decode: no figure, no point is ok.",)


def test_without_ceilings_there_is_no_roofline_but_a_line(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    rows = make_rows(
        "kda_decode", BATCHES, {"a": [1.0, 2.0, 4.0], "b": [1.0, 2.0, 3.0]}, run_id="r"
    )
    figures = plan_figures(section_of(rows, ceilings={}), styles_for(["a", "b"]))
    assert "kda-decode-roofline" not in names(figures)
    assert any("no measured ceilings" in line for line in figures.omissions)


def test_a_single_backend_has_no_speed_up_but_a_line(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    section = section_of(make_rows("kda_decode", BATCHES, {"a": [1.0, 2.0, 4.0]}, run_id="r"))
    figures = plan_figures(section, styles_for(["a"]))
    assert "kda-decode-speed-up" not in names(figures)
    assert any("no two backends are ok" in line for line in figures.omissions)


def test_every_figure_names_run_device_versions_and_date(prefill_run: Run) -> None:
    for plan in figures_of(prefill_run).plans:
        text = texts(drawn(plan)).replace("\n", " ")
        for word in ("synthetic-1", "Synthetic 1", "torch 9.9.0", "2030-01-02"):
            assert word in text, plan.name


def test_equal_content_gives_equal_svg_bytes(prefill_run: Run, tmp_path: Path) -> None:
    plan = figures_of(prefill_run).plans[0]
    contents = []
    for name in ("first", "second"):
        with themed():
            _, svg = write_figure(plan.build(), tmp_path / name, plan.description)
        contents.append(svg.read_bytes())
    assert contents[0] == contents[1]
    assert b"<dc:date>" not in contents[0]


def test_pictures_are_a_page_column_wide_at_200_dpi(decode_run: Run, tmp_path: Path) -> None:
    from PIL import Image

    plan = figures_of(decode_run).plans[0]
    with themed():
        png, _ = write_figure(plan.build(), tmp_path / "figure", plan.description)
    with Image.open(png) as picture:
        assert picture.width == 1400


def test_a_failed_point_is_drawn_with_its_outcome(prefill_run: Run) -> None:
    assert "oom" in texts(drawn(figures_of(prefill_run).plans[0])).splitlines()


def test_a_line_breaks_where_a_point_is_missing(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    rows = make_rows("kda_decode", BATCHES, {"a": [1.0, "oom: memory", 4.0]}, run_id="r")
    figure = drawn(plan_figures(section_of(rows), styles_for(["a"])).plans[0])
    line = figure.axes[0].get_lines()[0]
    assert [str(value) for value in line.get_ydata()] == ["1.0", "nan", "4.0"]


def test_backends_without_a_figure_are_named_under_the_picture(prefill_run: Run) -> None:
    text = texts(drawn(figures_of(prefill_run).plans[0]))
    assert "alpha: unsupported at 3 of 6 points" in text


def test_no_text_leaves_the_picture(prefill_run: Run, decode_run: Run) -> None:
    for plan in (*figures_of(prefill_run).plans, *figures_of(decode_run).plans):
        figure = drawn(plan)
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        assert box.x0 >= -0.01, plan.name
        assert box.y0 >= -0.01, plan.name
        assert box.x1 <= width + 0.01, plan.name
        assert box.y1 <= height + 0.01, plan.name


def test_a_backend_looks_the_same_in_every_figure_of_a_report(
    prefill_run: Run, decode_run: Run
) -> None:
    styles = build_document([prefill_run, decode_run]).styles
    assert list(styles) == ["alpha", "beta", "gamma"]


def test_any_two_of_seven_backends_differ_in_colour_and_in_marker() -> None:
    styles = styles_for("abcdefg").values()
    for one, other in itertools.combinations(styles, 2):
        assert one.colour != other.colour
        assert one.marker != other.marker


KDA = ("triton", "fla", "flashkda", "cudnn", "chunked", "recurrent")
MLA = ("triton", "flashmla", "flashinfer", "sdpa")
FAMILIES = (KDA, (*MLA, "absorbed"), (*MLA, "expanded"), ("own", "all_mla", "all_kda"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_known_backend_looks_the_same_whoever_is_beside_it_and_differs_from_them(
    family: tuple[str, ...],
) -> None:
    together = styles_for(family)
    backwards = styles_for(["unknown", *reversed(family)])
    for name in family:
        assert styles_for([name])[name] == together[name] == backwards[name]
    for one, other in itertools.combinations(backwards.values(), 2):
        assert one.colour != other.colour
        assert one.marker != other.marker


def test_known_backends_of_different_operators_do_not_look_alike() -> None:
    looks = styles_for([*KDA, *MLA, "absorbed", "expanded"]).values()
    assert len({(look.colour, look.marker) for look in looks}) == len(looks) == 11


def test_a_models_backend_looks_like_its_first_part_unless_that_is_taken() -> None:
    alone = styles_for(["chunked"])["chunked"]
    styles = styles_for(["chunked+sdpa", "chunked+absorbed"])
    assert styles["chunked+sdpa"] == alone
    assert styles["chunked+absorbed"].colour != alone.colour


def test_any_two_of_thirty_five_backends_can_be_told_apart() -> None:
    styles = styles_for(str(index) for index in range(35)).values()
    looks = {(style.colour, str(style.dashes)) for style in styles}
    assert len(looks) == 35


def test_the_first_five_colours_contrast_with_white_at_least_three_to_one() -> None:
    for style in list(styles_for("abcde").values()):
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in colors.to_rgb(style.colour)
        ]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert 1.05 / (luminance + 0.05) >= 3.0, style.colour


def test_numeric_axes_give_lines_with_a_panel_per_width(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    points = [{"heads": heads, "batch": batch} for heads in (8, 16) for batch in (1, 2, 4)]
    section = section_of(make_rows("kda_decode", points, {"a": [1.0] * 6}, run_id="r"))
    plan = lines_of(section.frame)
    assert plan is not None
    assert plan.x == "batch"
    assert [panel.title for panel in plan.panels] == ["8 heads", "16 heads"]


def test_points_without_a_common_axis_give_no_lines(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    points = [{"heads": h, "batch": b, "context": c} for h, b, c in ((8, 1, 64), (16, 2, 32))]
    section = section_of(make_rows("mla_decode", points, {"a": [1.0, 2.0]}, run_id="r"))
    assert lines_of(section.frame) is None
    labels = [category.label for category in categories_of(section.frame)]
    assert labels == ["H8  B1  context 64", "H16  B2  context 32"]


def model_prefill(
    make_rows: RowMaker, section_of: SectionMaker, points: list[dict[str, Any]]
) -> Section:
    times = [float(2 + index) for index in range(len(points))]
    rows = make_rows("tiny-9b", points, {"a": times}, run_id="r")
    return section_of([row | {"kind": "model", "phase": "prefill"} for row in rows])


PREFILLS = [
    {"seqlens": "1024", "prefix": 0, "chunk": 512},
    {"seqlens": "4096", "prefix": 0, "chunk": 512},
    {"seqlens": "65536", "prefix": 0, "chunk": 2048},
    {"seqlens": "262144", "prefix": 0, "chunk": 2048},
    {"seqlens": "4096", "prefix": 28672, "chunk": 512},
]


def test_a_point_alone_at_its_combination_is_drawn_apart_from_the_lines(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    section = model_prefill(make_rows, section_of, PREFILLS)
    plans = {plan.name: plan for plan in plan_figures(section, styles_for(["a"])).plans}
    (lines,) = drawn(plans["tiny-9b-prefill-device-time"]).axes
    assert len(list(lines.get_lines()[0].get_xdata())) == 4
    apart = plans["tiny-9b-prefill-device-time-apart"]
    assert apart.title.endswith("device time at seqlens 4096, chunk 512")
    (dots,) = drawn(apart).axes
    assert [text.get_text() for text in dots.get_yticklabels()] == ["prefix 0", "prefix 28672"]


def test_a_setting_that_moves_along_x_makes_no_panels_and_is_noted(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    section = model_prefill(make_rows, section_of, PREFILLS[:4])
    plan = lines_of(section.frame)
    assert plan is not None
    assert len(plan.panels) == 1
    assert plan.note == "chunk 512 at 1k, 4k; 2048 at 64k, 256k."
    figure = drawn(plan_figures(section, styles_for(["a"])).plans[0])
    assert plan.note in texts(figure)


def test_the_kv_throughput_of_single_sequences_is_drawn_with_the_interval_of_its_time(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    section = model_prefill(make_rows, section_of, PREFILLS)
    plans = plan_figures(section, styles_for(["a"])).plans
    (plan,) = [plan for plan in plans if plan.name.endswith("kv-throughput")]
    (axes,) = drawn(plan).axes
    assert axes.get_ylabel() == "KV throughput, GB/s"
    rows = section.frame.iloc[:4]
    assert list(axes.get_lines()[0].get_ydata()) == pytest.approx(list(rows["kv_throughput_gb_s"]))
    (bars,) = [one for one in axes.collections if hasattr(one, "get_segments")]
    low, high = bars.get_segments()[0][:, 1]
    first = rows.iloc[0]
    made = first["kv_throughput_gb_s"] * first["device_time_ms_p50"]
    assert low == pytest.approx(made / first["device_time_ms_ci_high"])
    assert high == pytest.approx(made / first["device_time_ms_ci_low"])


def test_a_small_kv_throughput_is_in_megabytes(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    section = model_prefill(make_rows, section_of, PREFILLS)
    small = section.frame.assign(kv_throughput_gb_s=section.frame["kv_throughput_gb_s"] / 1e4)
    rates = kv_rates(small)
    assert rates is not None
    assert rates.what.label == "KV throughput, MB/s"
    assert rates.what.factor == 1e3


def test_rows_that_leave_nothing_behind_have_no_kv_throughput(decode_run: Run) -> None:
    assert not any("kv-throughput" in name for name in names(figures_of(decode_run)))


@pytest.mark.parametrize(("widths", "rules"), [((8, 16, 32), 0), ((8, 8, 16), 1)])
def test_a_line_parts_sections_of_several_rows_only(
    make_rows: RowMaker, section_of: SectionMaker, widths: tuple[int, ...], rules: int
) -> None:
    texts_of = ("8x64", "3x128", "2x32")
    points = [{"heads": h, "seqlens": s} for h, s in zip(widths, texts_of, strict=True)]
    section = section_of(make_rows("kda_prefill", points, {"a": [1.0] * 3}, run_id="r"))
    (axes,) = drawn(plan_figures(section, styles_for(["a"])).plans[0]).axes
    drawn_lines = [list(line.get_ydata()) for line in axes.lines if line.get_marker() == "None"]
    assert len([heights for heights in drawn_lines if len(set(heights)) == 1]) == rules


def test_single_sequences_among_mixed_batches_get_a_figure_of_their_own(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    points = [{"seqlens": text} for text in ("1024", "2048", "4x256")]
    section = section_of(make_rows("kda_prefill", points, {"a": [1.0, 2.0, 1.0]}, run_id="r"))
    plan = scaling_of(section.frame)
    assert plan is not None
    assert list(plan.panels[0].rows["seqlens"]) == ["1024", "2048"]
    assert "kda-prefill-scaling" in names(plan_figures(section, styles_for(["a"])))


def test_many_rows_are_spread_over_several_pictures(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    points = [{"seqlens": f"{1000 + index}+{index}"} for index in range(40)]
    section = section_of(make_rows("kda_prefill", points, {"a": [1.0] * 40}, run_id="r"))
    found = names(plan_figures(section, styles_for(["a"])))
    assert found[:2] == ["kda-prefill-device-time", "kda-prefill-device-time-2"]


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.1), (0.2, 0.9), (0.01, 30.0), (3e-6, 4e8)])
def test_logarithmic_axes_have_at_least_three_round_ticks(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert len(ticks) >= 3
    assert all(low <= tick <= high for tick in ticks)


@given(low=st.floats(1e-6, 1e6), ratio=st.floats(1.3, 1e6))
def test_ticks_lie_within_the_axis_in_order_and_four_or_more(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert len(ticks) >= 4
    assert ticks == sorted(set(ticks))
    assert low <= ticks[0]
    assert ticks[-1] <= low * ratio


@pytest.mark.parametrize(
    ("low", "high"), [(0.63, 1.27), (20.0, 290.0), (170.0, 4700.0), (0.55, 1.25), (1.0, 7000.0)]
)
def test_no_end_of_a_logarithmic_axis_is_far_from_a_tick(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    reach = math.log(high / low)
    assert math.log(ticks[0] / low) <= 0.2 * reach
    assert math.log(high / ticks[-1]) <= 0.2 * reach


def test_crowded_ticks_are_thinned() -> None:
    assert spaced_ticks([8.0, 1.0, 8.1, 64.0]) == [1.0, 8.0, 64.0]


def test_the_ceilings_are_named_where_no_point_lies(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    """Points at its left end or close below the slope, as a decode has them, and far to the right.

    On no line either, such as the one where the ceilings meet.
    """
    batches = [{"heads": 8, "batch": batch} for batch in range(1, 61)]
    for spread in (0.01, 1.0, 20.0):
        rows = make_rows("kda_decode", batches, {"a": [1.0] * 60}, run_id="r")
        for index, row in enumerate(rows):
            intensity = 1.1 ** (index * spread)  # FLOP per byte
            row["bandwidth_gb_s"] = 4000 * (0.5 + 0.07 * (index % 6)) / max(1, intensity / 100)
            row["compute_tflop_s"] = row["bandwidth_gb_s"] * intensity / 1e3
        figures = plan_figures(section_of(rows), styles_for(["a"]))
        plan = next(plan for plan in figures.plans if plan.name.endswith("roofline"))
        assert_no_text_on_a_point_or_line(drawn(plan))


def along(line: Line2D) -> list[tuple[float, float]]:
    """Places a pixel or so apart on a line, in pixels."""
    corners = line.get_transform().transform(line.get_xydata())
    return [
        (x0 + (x1 - x0) * step / 1000, y0 + (y1 - y0) * step / 1000)
        for (x0, y0), (x1, y1) in itertools.pairwise(corners)
        for step in range(1001)
    ]


def assert_no_text_on_a_point_or_line(figure: Figure) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Annotation

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.findobj(Annotation)]
    assert boxes
    for line in axes.lines:
        if line.get_marker() not in ("None", None):
            for x, y in axes.transData.transform(line.get_xydata()):
                assert not any(box.contains(x, y) for box in boxes)
        else:
            assert not any(box.contains(x, y) for x, y in along(line) for box in boxes)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        assert box.x0 >= axes.get_window_extent().x0


def test_each_point_of_a_roofline_lies_where_its_own_figures_put_it(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    times = {"a": [1.0, 2.0, 4.0], "b": [1.01, 2.0, 4.0], "c": [1.1, 2.0, 4.0]}
    rows = make_rows("kda_decode", BATCHES, times, run_id="r")
    plans = plan_figures(section_of(rows), styles_for(times)).plans
    plan = next(plan for plan in plans if plan.name.endswith("roofline"))
    (axes,) = drawn(plan).axes
    points = [line for line in axes.lines if line.get_marker() not in ("None", None)]
    assert [len(list(line.get_ydata())) for line in points] == [3, 3, 3]
    for line in points:
        assert list(line.get_xdata()) == pytest.approx([200.0] * 3)  # 2e11 FLOP per 1e9 bytes


def test_points_of_several_backends_that_meet_in_a_roofline_stay_visible(
    make_rows: RowMaker, section_of: SectionMaker
) -> None:
    rows = make_rows("kda_decode", BATCHES, {name: [1.0] * 3 for name in "abc"}, run_id="r")
    plans = plan_figures(section_of(rows), styles_for("abc")).plans
    plan = next(plan for plan in plans if plan.name.endswith("roofline"))
    (axes,) = drawn(plan).axes
    points = [line for line in axes.lines if line.get_marker() not in ("None", None)]
    sizes = [line.get_markersize() for line in points]
    assert sizes == sorted(set(sizes), reverse=True)
    assert {line.get_markerfacecolor() for line in points} == {"none"}


def test_shortened_lengths_are_spelled_out_below_the_figures_that_show_them(
    prefill_run: Run,
) -> None:
    plans = {plan.name: texts(drawn(plan)) for plan in figures_of(prefill_run).plans}
    spelled = "6 mixed (8k): 1300+547+2048+963+271+3063."
    said = {name: spelled in text.replace("\n", " ") for name, text in plans.items()}
    assert said == {
        "kda-prefill-device-time": True,
        "kda-prefill-speed-up": True,
        "kda-prefill-roofline-share": True,
        "kda-prefill-roofline": False,
    }
