"""Charts of serving points: what is drawn, what is left out, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from benchx.reporting.chart_canvas import themed
from benchx.reporting.document import build_document
from benchx.reporting.figure_plan import FigureList
from benchx.reporting.figures import plan_figures
from benchx.reporting.png import PngSink
from benchx.reporting.serving_layout import front
from benchx.reporting.sink import Destination
from benchx.store import Run

RunMaker = Callable[..., Run]
LOADS = [{"concurrency": load} for load in (1, 4, 16)]
number = st.floats(0.1, 1e4)


def plans_of(run: Run) -> FigureList:
    document = build_document([run])
    (section,) = document.sections
    return plan_figures(section, document.styles)


def drawn(run: Run, ending: str) -> Figure:
    (plan,) = [plan for plan in plans_of(run).plans if plan.name.endswith(ending)]
    with themed():
        figure = plan.build()
        figure.draw_without_rendering()
    return figure


def words(figure: Figure) -> str:
    inside = [text.get_text() for axes in figure.axes for text in axes.texts]
    said = " ".join([*inside, *(text.get_text() for text in figure.texts)])
    return " ".join(said.split())


@given(points=st.lists(st.tuples(number, number), min_size=1, max_size=30))
def test_no_point_beats_one_of_the_front_and_every_other_point_is_beaten(
    points: list[tuple[float, float]],
) -> None:
    best = front(points)
    beaten = {
        one
        for one in points
        if any(other != one and other[0] >= one[0] and other[1] >= one[1] for other in points)
    }
    assert set(best) == set(points) - beaten


def test_each_point_bears_its_concurrency(serving_run: Run) -> None:
    figure = drawn(serving_run, "throughput")
    shown = {text.get_text() for text in figure.axes[0].texts}
    assert shown == {"1", "4", "16", "64"}
    assert "Beside the points: concurrency" in words(figure)
    assert figure.axes[0].get_ylabel() == "output, tok/s per GPU"


def test_every_chart_names_model_engine_and_settings_as_the_table_does(
    make_serving_run: RunMaker,
) -> None:
    points = [{"input_len": length, **load} for length in (1024, 8192) for load in LOADS]
    run = make_serving_run(points, provenance={"load_format": "dummy"})
    (section,) = build_document([run]).sections
    plans = plans_of(run).plans
    assert {plan.name.split("-")[-1] for plan in plans} == {"throughput", "latency", "prompts"}
    for plan in plans:
        with themed():
            said = words(plan.build())
        assert section.table.caption[1:] in said, plan.name
        for word in ("tiny-9b", "alpha 4.5.6", "random weights (speed only)"):
            assert word in said, plan.name


def test_a_failed_point_is_named_under_the_drawing(serving_run: Run) -> None:
    for ending in ("throughput", "latency"):
        assert "alpha: crashed at 1 of 5 points" in words(drawn(serving_run, ending))


def test_both_axes_of_the_front_are_logarithmic_however_near_the_points_lie(
    make_serving_run: RunMaker,
) -> None:
    run = make_serving_run([{"concurrency": load} for load in (4, 5, 6)])
    (axes,) = drawn(run, "throughput").axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    for low, high in (axes.get_xlim(), axes.get_ylim()):
        assert high / low >= 2.99


def test_no_label_of_a_front_leaves_its_axes(make_serving_run: RunMaker) -> None:
    points = [{"concurrency": load} for load in (1, 4, 16, 64, 256, 1024)]
    (axes,) = drawn(make_serving_run(points), "throughput").axes
    inside = axes.get_window_extent()
    assert len(axes.texts) == 6
    for text in axes.texts:
        box = text.get_window_extent()
        assert inside.y0 <= box.y0 <= box.y1 <= inside.y1
        assert inside.x0 <= box.x0 <= box.x1 <= inside.x1


def test_intervals_over_launches_are_drawn_where_the_table_has_them(
    make_serving_run: RunMaker,
) -> None:
    across = {"interactivity_tok_s_ci_low": 30.0, "interactivity_tok_s_ci_high": 300.0}
    upright = {
        "output_throughput_tok_s_per_gpu_ci_low": 1.0,
        "output_throughput_tok_s_per_gpu_ci_high": 2000.0,
    }
    for changes, count, said in (
        ({}, 0, "No bars: an interval takes three launches."),
        (across, 1, "Bars of interactivity: "),
        (across | upright, 2, "Bars: "),
    ):
        figure = drawn(make_serving_run(LOADS, changes=changes), "throughput")
        assert len(figure.axes[0].collections) == count
        assert said in words(figure)


def test_the_line_is_the_front_and_a_worse_point_is_not_on_it(make_serving_run: RunMaker) -> None:
    points = [{"concurrency": load, "tensor_parallel": 1, "slowness": 1} for load in (1, 4)]
    points += [{"concurrency": 4, "tensor_parallel": 2, "slowness": 9}]
    axes = drawn(make_serving_run(points), "throughput").axes[0]
    assert len(axes.lines[0].get_xdata()) == 2  # type: ignore[arg-type]


def test_a_front_of_one_point_is_not_called_a_line(make_serving_run: RunMaker) -> None:
    ahead = make_serving_run(LOADS, changes={"interactivity_tok_s_p50": 50.0})
    for run, is_line in (make_serving_run(LOADS), True), (ahead, False):
        said = words(drawn(run, "throughput"))
        assert ("No line: one point is the best in both" in said) is not is_line
        assert ("Line: Pareto front" in said) is is_line


def test_where_gpus_were_not_counted_throughput_is_not_per_gpu(make_serving_run: RunMaker) -> None:
    figure = drawn(
        make_serving_run(LOADS, changes={"output_throughput_tok_s_per_gpu": None}), "throughput"
    )
    assert figure.axes[0].get_ylabel() == "output, tok/s"
    assert "Not per GPU" in words(figure)


def test_workloads_are_not_mixed_in_one_front(make_serving_run: RunMaker) -> None:
    points = [{"input_len": length, **load} for length in (1024, 8192) for load in LOADS]
    for ending, count in (("throughput", 2), ("latency", 4)):
        figure = drawn(make_serving_run(points), ending)
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert len(titles) == count
        assert set(titles) == {"input_len 1024", "input_len 8192"}


def test_times_are_drawn_as_medians_and_99th_percentiles(serving_run: Run) -> None:
    figure = drawn(serving_run, "latency")
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "time to first token, ms",
        "time per output token, ms",
    ]
    assert [text.get_text() for text in figure.axes[0].texts] == ["p50", "p99"]
    assert "Hollow: 99th percentiles" in words(figure)


def test_without_enough_requests_no_99th_percentile_is_drawn(make_serving_run: RunMaker) -> None:
    run = make_serving_run(LOADS, changes={"ttft_ms_p99": None, "tpot_ms_p99": None})
    figure = drawn(run, "latency")
    assert [text.get_text() for text in figure.axes[0].texts] == ["p50"]
    assert "too few requests" in words(figure)


PROMPTS = [{"input_len": length, "concurrency": 1} for length in (1024, 8192, 32768)]


def test_prompts_of_several_lengths_get_a_chart_of_their_own(make_serving_run: RunMaker) -> None:
    crowded = [{"input_len": 1024, "concurrency": load} for load in (4, 16)]
    run = make_serving_run([*PROMPTS, *crowded], changes={"kv_throughput_gbit_s": 3.5})
    figure = drawn(run, "prompts")
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "time to first token, ms",
        "KV throughput, Gbit/s",
    ]
    lengths = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert lengths == ["1k", "8k", "32k"]
    assert [len(line.get_xdata()) for line in figure.axes[1].lines] == [3]  # type: ignore[arg-type]
    assert [text.get_text() for text in figure.axes[1].texts] == []
    assert "At concurrency 1." in words(figure)


def test_without_kv_throughput_only_the_first_token_is_drawn(make_serving_run: RunMaker) -> None:
    points = [{"input_len": length} for length in (1024, 8192)]
    run = make_serving_run(points, changes={"kv_throughput_gbit_s": None})
    figure = drawn(run, "prompts")
    assert [axes.get_ylabel() for axes in figure.axes] == ["time to first token, ms"]
    assert "KV throughput" not in words(figure)


def test_prompts_of_one_length_are_no_line(make_serving_run: RunMaker) -> None:
    run = make_serving_run([{"input_len": 1024, **load} for load in LOADS])
    assert not [plan.name for plan in plans_of(run).plans if plan.name.endswith("prompts")]


def test_a_workload_with_one_load_has_no_panel_against_load(make_serving_run: RunMaker) -> None:
    lone = {"input_len": 8192, "concurrency": 1}
    figure = drawn(
        make_serving_run([lone, *({"input_len": 1024, **one} for one in LOADS)]), "latency"
    )
    assert {axes.get_title(loc="left") for axes in figure.axes} == {"input_len 1024"}


def test_where_no_line_has_two_loads_it_says_so(make_serving_run: RunMaker) -> None:
    run = make_serving_run(
        [{"input_len": 1024, "concurrency": 1}, {"input_len": 8192, "concurrency": 4}]
    )
    assert any(
        "no line has a time to first token at two loads" in one for one in plans_of(run).omissions
    )


def test_an_open_loop_is_drawn_against_its_rate(make_serving_run: RunMaker) -> None:
    run = make_serving_run([{"request_rate": rate} for rate in (0.5, 1.0, 2.0)])
    assert drawn(run, "latency").axes[0].get_xlabel() == "request rate, requests/s"
    assert "0.5/s" in words(drawn(run, "throughput"))


def test_settings_of_an_engine_are_told_apart_in_a_legend(make_serving_run: RunMaker) -> None:
    points = [{"tensor_parallel": size, **load} for size in (1, 2) for load in LOADS]
    for ending in ("throughput", "latency"):
        (legend,) = drawn(make_serving_run(points), ending).legends
        assert [text.get_text() for text in legend.get_texts()] == [
            "alpha, tensor_parallel 1",
            "alpha, tensor_parallel 2",
        ]


@pytest.mark.parametrize(("points", "failed"), [(LOADS, 3), ([{"concurrency": 4}], 0)])
def test_nothing_is_drawn_from_an_empty_selection(
    make_serving_run: RunMaker, points: list[dict[str, int]], failed: int
) -> None:
    found = plans_of(make_serving_run(points, failed=failed))
    assert found.plans == ()
    assert found.omissions


def test_points_without_streaming_have_no_chart_of_times(make_serving_run: RunMaker) -> None:
    gone = {
        name: None
        for name in (
            *("ttft_ms_p50", "ttft_ms_ci_low", "ttft_ms_ci_high", "ttft_ms_p99"),
            *("tpot_ms_p50", "tpot_ms_ci_low", "tpot_ms_ci_high", "tpot_ms_p99"),
            "interactivity_tok_s_p50",
        )
    }
    found = plans_of(make_serving_run(LOADS, changes=gone))
    assert found.plans == ()
    assert len(found.omissions) == 3


def test_figures_are_written_under_their_own_names(serving_run: Run, tmp_path: Path) -> None:
    paths = PngSink().write(build_document([serving_run]), Destination(folder=tmp_path))
    assert [path.name for path in paths] == [
        "serving-random-throughput.png",
        "serving-random-throughput.svg",
        "serving-random-latency.png",
        "serving-random-latency.svg",
    ]
