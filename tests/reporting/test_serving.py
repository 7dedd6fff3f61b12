"""Tables of serving points: what is shown, what a token costs, and what is never made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from benchx.reporting import print_run
from benchx.reporting.document import Section, build_document
from benchx.reporting.markdown import failure_lines, markdown
from benchx.reporting.numbers import ABSENT
from benchx.reporting.table import cell_of
from benchx.store import Run

RunMaker = Callable[..., Run]
LOADS = [{"concurrency": load} for load in (1, 4)]
HOSTED = {"gpus": None, "gpus_source": None, "gpu_names": []}
CPU = {"gpus": 0, "gpus_source": "no_gpu", "gpu_names": []}
NO_PER_GPU = {"output_throughput_tok_s_per_gpu": None}


def section_of(run: Run) -> Section:
    (section,) = build_document([run]).sections
    return section


def cells(section: Section, key: str) -> list[str]:
    return [cell_of(section.table, row, key) for row in section.table.rows]


def keys(section: Section) -> list[str]:
    return [column.key for column in section.table.columns]


def footnotes(section: Section) -> str:
    return "\n".join(section.table.footnotes)


def test_serving_points_have_times_of_requests_and_no_device_time(serving_run: Run) -> None:
    section = section_of(serving_run)
    assert not {"time", "backend", "roofline"} & set(keys(section))
    assert cells(section, "ttft")[:2] == ["46", "64"]
    assert cells(section, "tpot")[0] == "5.12"
    assert cells(section, "ttft_p99")[0] == "101"
    assert cells(section, "engine") == ["alpha"] * 5
    assert "model tiny-9b" in section.table.caption


def test_kv_throughput_comes_with_the_source_of_its_time(
    serving_run: Run, make_serving_run: RunMaker
) -> None:
    section = section_of(serving_run)
    assert cells(section, "kv_gbit")[0] == "3.59"
    assert "prefill time: the server's metrics" in section.table.caption
    assert "kv_prefill_source" not in keys(section)
    gone = {"kv_throughput_gbit_s": None, "kv_throughput_gb_s": None, "kv_prefill_source": None}
    without = section_of(make_serving_run(LOADS, changes=gone))
    assert not {"kv_gbit", "kv_gb"} & set(keys(without))
    assert "prefill time" not in without.table.caption


def test_the_version_of_the_engine_is_in_the_caption(serving_run: Run) -> None:
    assert "alpha 4.5.6" in section_of(serving_run).table.caption


def test_random_weights_and_decreed_acceptance_are_said(make_serving_run: RunMaker) -> None:
    told = {"load_format": "dummy", "acceptance": "synthetic"}
    caption = section_of(make_serving_run(LOADS, provenance=told)).table.caption
    assert "random weights" in caption
    assert "acceptance of drafts: synthetic" in caption
    plain = {"load_format": None, "acceptance": "none"}
    assert "accept" not in section_of(make_serving_run(LOADS, provenance=plain)).table.caption


@pytest.mark.parametrize(("mean", "shown"), [(1024.0, False), (1030.0, False), (3300.0, True)])
def test_lengths_that_are_not_what_was_asked_for_have_a_column(
    make_serving_run: RunMaker, mean: float, shown: bool
) -> None:
    changes = {"input_tokens_mean": mean, "output_tokens_mean": 256.0}
    section = section_of(make_serving_run(LOADS, changes=changes))
    assert ("input" in keys(section)) is shown
    assert "output_len" not in keys(section)
    if shown:
        assert cells(section, "input")[0] == "3300"


def test_what_the_server_told_has_columns_where_there_is_something_to_tell(
    make_serving_run: RunMaker,
) -> None:
    told = {
        "server_kv_usage_share": 0.83,
        "server_queue_ms_mean": 12.0,
        "server_preemptions": 0.0,
        "server_prefix_hit_share": 0.25,
        "acceptance_length_tokens": 2.5,
        "output_energy_j_tok": 0.7,
        "steady_output_throughput_tok_s": 99.0,
    }
    section = section_of(make_serving_run(LOADS, changes=told))
    assert cells(section, "kv_usage")[0] == "83"
    assert cells(section, "queue")[0] == "12.0"
    assert cells(section, "hits")[0] == "25"
    assert cells(section, "acceptance")[0] == "2.50"
    assert cells(section, "energy")[0] == "0.700"
    assert cells(section, "steady")[0] == "99.0"
    assert "preemptions" not in keys(section)  # none happened
    happened = section_of(make_serving_run(LOADS, changes={"server_preemptions": 3.0}))
    assert cells(happened, "preemptions")[0] == "3"


def test_a_cache_that_was_only_read_while_nothing_ran_has_no_share_in_use(
    make_serving_run: RunMaker,
) -> None:
    idle = section_of(make_serving_run(LOADS, changes={"server_kv_usage_share": 0.0}))
    assert "kv_usage" not in keys(idle)
    run = make_serving_run(LOADS, changes={"server_kv_usage_share": 0.5})
    rows = [dict(row) for row in run.rows]
    rows[0]["server_kv_usage_share"] = 0.0
    assert cells(section_of(replace(run, rows=tuple(rows))), "kv_usage") == [ABSENT, "50"]


def test_a_failed_point_shows_its_reason_and_no_figure(serving_run: Run) -> None:
    section = section_of(serving_run)
    last = section.table.rows[-1]
    assert set(last.cells[keys(section).index("n") :]) == {ABSENT}
    assert cells(section, "outcome")[-1] == "crashed [1]"
    assert "[1] crashed: the engine ended" in footnotes(section)
    assert failure_lines(section) == ["alpha, crashed (1 point): the engine ended (exit status 1)"]


def test_the_cost_is_the_price_of_all_gpus_over_the_tokens_of_the_deployment(
    make_serving_run: RunMaker,
) -> None:
    rates = {
        "input_throughput_tok_s": 4000.0,
        "output_throughput_tok_s": 1000.0,
        "total_throughput_tok_s": 5000.0,
    }
    cost = {"hardware": "h200", "prices": "rental"}
    section = section_of(make_serving_run(LOADS, cost=cost, changes=rates))
    per_hour = 2.90  # the table's newest rental price of an H200, two of which are in use
    dollars = [per_hour * 2 / 3600 / rate * 1e6 for rate in (4000, 1000, 5000)]
    shown = [float(cells(section, f"cost_{name}")[0]) for name in ("input", "output", "total")]
    assert shown == pytest.approx(dollars, rel=5e-3)


def test_a_cost_names_its_formula_and_the_tier_date_and_source_of_its_price(
    serving_run: Run,
) -> None:
    text = footnotes(section_of(serving_run))
    for word in ("formula gpu_hour", "rental", "2026-07", "SemiAnalysis", "2 GPUs (nvml)"):
        assert word in text


@pytest.mark.parametrize(
    ("cost", "provenance", "reasons"),
    [
        (None, {}, ("the scenario asks for none",)),
        ({"hardware": "h200", "prices": "rental"}, HOSTED, ("the number of GPUs is unknown",)),
        ({"hardware": "auto", "prices": "rental"}, HOSTED, ("number of GPUs", "kind of GPU")),
        ({"hardware": "auto", "prices": "rental"}, CPU, ("no GPU was in use",)),
        ({"hardware": "h200", "prices": "lottery"}, {}, ("unknown price tier",)),
        ({"hardware": "gaudi3", "prices": "rental"}, {}, ("no rental price of Intel Gaudi 3",)),
        (
            {"hardware": "auto", "prices": "rental"},
            {"gpu_names": ["Abacus 9"]},
            ("Abacus 9 is not in the table of hardware",),
        ),
        (
            {"hardware": "auto", "prices": "rental"},
            {"gpu_names": ["NVIDIA H200", "AMD Instinct MI300X"]},
            ("several kinds of GPU",),
        ),
    ],
)
def test_an_unknown_price_gives_no_number_and_says_what_is_missing(
    make_serving_run: RunMaker,
    cost: Mapping[str, str] | None,
    provenance: Mapping[str, Any],
    reasons: tuple[str, ...],
) -> None:
    run = make_serving_run(LOADS, cost=cost, provenance=provenance, changes=NO_PER_GPU)
    section = section_of(run)
    assert not [key for key in keys(section) if key.startswith("cost_")]
    (line,) = [text for text in section.table.footnotes if text.startswith("no cost per token")]
    for reason in reasons:
        assert reason in line


def test_a_class_of_tokens_that_was_not_counted_has_no_cost(make_serving_run: RunMaker) -> None:
    changes = {"input_throughput_tok_s": None, "total_throughput_tok_s": None}
    section = section_of(make_serving_run(LOADS, changes=changes))
    assert [key for key in keys(section) if key.startswith("cost_")] == ["cost_output"]


def test_the_machine_that_benchx_runs_on_is_not_taken_for_the_engines(
    make_serving_run: RunMaker,
) -> None:
    """A hosted service is not priced by the client's own GPU."""
    provenance = HOSTED | {"gpus": 8, "gpus_source": "declared"}
    run = make_serving_run(LOADS, provenance=provenance, changes={"device_name": "NVIDIA H200"})
    assert "the kind of GPU is unknown" in footnotes(section_of(run))


def test_without_gpus_there_is_no_figure_per_gpu(make_serving_run: RunMaker) -> None:
    run = make_serving_run(LOADS, provenance=CPU, changes=NO_PER_GPU)
    assert "output_per_gpu" not in keys(section_of(run))


def test_without_an_slo_there_is_no_goodput(make_serving_run: RunMaker) -> None:
    run = make_serving_run(LOADS, changes={"goodput_req_s": None, "goodput_share": None})
    assert not {"goodput", "attainment"} & set(keys(section_of(run)))


def test_a_narrow_terminal_keeps_load_outcome_times_and_throughput(serving_run: Run) -> None:
    out = StringIO()
    print_run(serving_run, Console(file=out, width=80, color_system=None))
    lines = out.getvalue().splitlines()
    (heading,) = [line for line in lines if line.startswith("concurrency")]
    for word in ("engine", "outcome", "TTFT ms", "TPOT ms", "out tok/s"):
        assert word in heading
    assert "not shown at this width" in out.getvalue()


def test_kernel_rows_and_serving_rows_of_one_run_have_tables_of_their_own(
    make_serving_run: RunMaker, make_rows: Callable[..., list[dict[str, Any]]], make_run: RunMaker
) -> None:
    served = make_serving_run(LOADS)
    kernels = make_run(
        make_rows("kda_decode", [{"heads": 8}], {"beta": [0.2]}, run_id="synthetic-3"),
        run_id="synthetic-3",
    )
    mixed = served.__class__(**{**vars(served), "rows": (*kernels.rows, *served.rows)})
    document = build_document([mixed])
    assert [section.table.title for section in document.sections] == [
        "KDA decode",
        "Serving, random",
    ]
    assert list(document.styles) == ["beta"]


def test_the_method_of_a_serving_run_says_nothing_of_kernels(serving_run: Run) -> None:
    text = markdown(build_document([serving_run]))
    assert "handed to the socket" in text
    assert "Workload: dataset random." in text
    assert "Load: launches 3, seed 0." in text
    for word in ("device time", "fp64", "roofline", "None", "Settings"):
        assert word not in text
