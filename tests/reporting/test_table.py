"""What a table may say of a point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from benchx.core.outcome import Outcome
from benchx.reporting.columns import legend_lines
from benchx.reporting.document import build_document
from benchx.reporting.frame import load_frame
from benchx.reporting.numbers import ABSENT
from benchx.reporting.table import OperatorTable, cell_of, operator_table
from benchx.store import Run

RowMaker = Callable[..., list[dict[str, Any]]]
HEADS = [{"heads": 8}, {"heads": 16}]


def table_of(rows: Sequence[dict[str, Any]]) -> OperatorTable:
    return operator_table(load_frame([SimpleNamespace(rows=rows)]))


def keys(table: OperatorTable) -> list[str]:
    return [column.key for column in table.columns]


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.OK])
def test_a_point_that_is_not_ok_shows_its_reason_and_no_figure(
    make_rows: RowMaker, outcome: Outcome
) -> None:
    rows = make_rows("kda_prefill", HEADS, {"a": [1.0, f"{outcome.value}: so it is"]}, run_id="r")
    rows[1] |= {name: rows[0][name] for name in rows[0] if name.endswith(("_p50", "_s"))}
    table = table_of(rows)
    bad = table.rows[1]
    assert set(bad.cells[keys(table).index("time") :]) == {ABSENT}
    assert cell_of(table, bad, "outcome") == f"{outcome.value} [1]"
    assert f"[1] {outcome.value}: so it is" in table.footnotes


def test_equal_reasons_share_a_footnote(make_rows: RowMaker) -> None:
    rows = make_rows("kda_prefill", HEADS, {"a": ["oom: memory"] * 2, "b": [1.0, 2.0]}, run_id="r")
    table = table_of(rows)
    assert [line for line in table.footnotes if line.startswith("[")] == ["[1] oom: memory"]


def test_axes_that_vary_are_columns_and_the_others_are_in_the_caption(make_rows: RowMaker) -> None:
    rows = make_rows("kda_prefill", HEADS, {"a": [1.0, 2.0]}, run_id="r", fixed={"head_dim": 128})
    table = table_of(rows)
    assert table.axes == ("heads",)
    assert "head_dim 128" in table.caption


def test_kv_throughput_is_a_column_only_where_it_is_defined(make_rows: RowMaker) -> None:
    for leaves_kv in (True, False):
        rows = make_rows("x", HEADS, {"a": [1.0, 2.0]}, run_id="r", leaves_kv=leaves_kv)
        assert ("kv_gb_s" in keys(table_of(rows))) is leaves_kv


def test_the_fastest_is_marked_by_a_sign_and_explained(make_rows: RowMaker) -> None:
    rows = make_rows("x", HEADS, {"a": [1.0, 2.0], "b": [2.0, 1.0]}, run_id="r")
    table = table_of(rows)
    names = [cell_of(table, row, "backend") for row in table.rows]
    assert names == ["a *", "b", "a", "b *"]
    assert table.footnotes[0].startswith("* fastest")


def test_n_is_launches_times_samples_and_says_when_it_is_an_average(make_rows: RowMaker) -> None:
    rows = make_rows("x", HEADS, {"a": [1.0, 2.0]}, run_id="r")
    rows[1]["samples"] = 287
    table = table_of(rows)
    assert [cell_of(table, row, "n") for row in table.rows] == ["3x100", "3x~96"]


def test_without_intervals_there_is_no_such_column_and_the_reader_is_warned(
    make_rows: RowMaker,
) -> None:
    rows = make_rows("x", HEADS, {"a": [1.0, 2.0], "b": [1.1, 2.1]}, run_id="r")
    for row in rows:
        row |= {"device_time_ms_ci_low": None, "device_time_ms_ci_high": None, "launches": 2}
    table = table_of(rows)
    assert "interval" not in keys(table)
    assert any("may be noise" in line for line in table.footnotes)


def test_the_legend_says_what_the_interval_is_worth(make_rows: RowMaker) -> None:
    rows = make_rows("x", HEADS, {"a": [1.0, 2.0]}, run_id="r")
    assert "75 %" in legend_lines(table_of(rows).columns)[0]


def test_slow_machines_get_a_smaller_unit(make_rows: RowMaker) -> None:
    rows = make_rows("x", HEADS, {"a": [1e6, 2e6]}, run_id="r")
    headings = [column.heading for column in table_of(rows).columns]
    assert "GFLOP/s" in headings
    assert "MB/s" in headings


def test_notes_are_explained_in_footnotes(make_rows: RowMaker) -> None:
    rows = make_rows("x", HEADS, {"a": [1.0, 2.0]}, run_id="r")
    rows[0]["notes"] = ["host_bound", "a_new_word"]
    table = table_of(rows)
    assert cell_of(table, table.rows[0], "outcome") == "ok [1] [2]"
    assert any(line.startswith("[1] host bound: the host") for line in table.footnotes)
    assert "[2] a new word" in table.footnotes


def test_a_models_name_is_printed_as_it_is_written(make_rows: RowMaker) -> None:
    rows = make_rows("kimi-linear-48b-a3b", HEADS, {"a": [1.0, 2.0]}, run_id="r")
    table = table_of([row | {"kind": "model", "phase": "prefill"} for row in rows])
    assert table.title == "Model kimi-linear-48b-a3b, prefill"


def test_the_phases_of_a_model_have_tables_of_their_own(
    make_rows: RowMaker, make_run: Callable[..., Run]
) -> None:
    """They share no axis: in one table half of the cells were empty."""
    phases = {"prefill": {"seqlens": "128"}, "decode": {"batch": 4}}
    rows = [
        row | {"kind": "model", "phase": phase}
        for phase, axes in phases.items()
        for row in make_rows("some-model", [axes], {"a": [1.0]}, run_id="synthetic-1")
    ]
    sections = build_document([make_run(rows)]).sections
    assert [section.key for section in sections] == ["some-model-prefill", "some-model-decode"]
    assert not any(section.table.axes for section in sections)


def test_footnote_marks_of_a_row_rise(make_rows: RowMaker) -> None:
    rows = make_rows("kda_decode", HEADS, {"a": [1.0, 1.0]}, run_id="r")
    rows[0]["notes"] = ["sw_power_cap", "warm_l2"]
    rows[1]["notes"] = ["host_bound", "warm_l2", "sw_power_cap"]
    table = table_of(rows)
    assert [cell_of(table, row, "outcome") for row in table.rows] == [
        "ok [1] [2]",
        "ok [1] [2] [3]",
    ]


def test_a_note_on_slow_submission_comes_with_the_column_that_it_names(
    make_rows: RowMaker,
) -> None:
    rows = make_rows("x", HEADS, {"a": [1.0, 2.0]}, run_id="r")
    assert "call" not in keys(table_of(rows))
    for row in rows:
        row["call_time_ms_p50"] = 7.25
    rows[0]["notes"] = ["warm_l2", "slow_submission"]
    table = table_of(rows)
    assert [cell_of(table, row, "call") for row in table.rows] == ["7.25", "7.25"]
    heading = next(column.heading for column in table.columns if column.key == "call")
    assert any(f'the column "{heading}"' in line for line in table.footnotes)


def test_a_size_or_length_of_the_axes_is_printed_with_its_letter(make_rows: RowMaker) -> None:
    points = [{"context": 8192, "block_bytes": 2**14}, {"context": 131072, "block_bytes": 2**20}]
    fixed = {"folder": "", "total_bytes": 2**30}
    table = table_of(make_rows("x", points, {"a": [1.0, 2.0]}, run_id="r", fixed=fixed))
    assert [cell_of(table, row, "context") for row in table.rows] == ["8k", "128k"]
    assert [cell_of(table, row, "block_bytes") for row in table.rows] == ["16 KiB", "1 MiB"]
    assert "total_bytes 1 GiB" in table.caption
    assert "folder" not in table.caption


def test_a_backend_that_was_not_asked_for_everywhere_is_named_under_the_table(
    make_rows: RowMaker,
) -> None:
    rows = make_rows("x", HEADS, {"a": [1.0, 2.0], "b": [1.0, 2.0]}, run_id="r")
    assert "b: not asked for at 1 of 2 combinations of inputs" in table_of(rows[:-1]).footnotes
