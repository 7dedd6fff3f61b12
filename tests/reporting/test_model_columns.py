"""A model's table shows what a call leaves behind, part by part, and the memory it works with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchx.reporting.console import columns_that_fit
from benchx.reporting.document import Section
from benchx.reporting.numbers import ABSENT
from benchx.reporting.table import cell_of

SIZES = {"kv_cache_bytes": 9.0 * 2**20, "kv_state_bytes": 2.0**20, "peak_memory_bytes": 3.0 * 2**30}


@pytest.fixture
def section_with(
    make_rows: Callable[..., Any], section_of: Callable[..., Section]
) -> Callable[..., Section]:
    def build(kind: str, **sizes: float) -> Section:
        rows = make_rows("tiny-9b", [{"batch": 1}], {"alpha": [2.0]}, run_id="synthetic-1")
        return section_of([row | {"kind": kind, "phase": "prefill", **sizes} for row in rows])

    return build


def test_cache_and_state_are_shown_apart_beside_their_rate(
    section_with: Callable[..., Section],
) -> None:
    table = section_with("model", **SIZES).table
    cells = {key: cell_of(table, table.rows[0], key) for key in ("cache", "state", "working")}
    assert cells == {"cache": "9 MiB", "state": "1 MiB", "working": "3 GiB"}
    assert "kv_gb_s" in [column.key for column in table.columns]


def test_the_kv_throughput_of_a_model_stays_in_a_narrow_terminal(
    section_with: Callable[..., Section],
) -> None:
    table = section_with("model", **SIZES).table
    for width in (60, 80, 100):
        assert "kv_gb_s" in {column.key for column in columns_that_fit(table, width)}, width


def test_memory_that_was_not_measured_has_no_column(section_with: Callable[..., Section]) -> None:
    table = section_with("model", kv_cache_bytes=SIZES["kv_cache_bytes"]).table
    keys = [column.key for column in table.columns]
    assert "cache" in keys
    assert not {"state", "working"} & set(keys)


def test_a_row_without_the_figure_of_another_shows_none(
    make_rows: Callable[..., Any], section_of: Callable[..., Section]
) -> None:
    points = [{"batch": 1}, {"batch": 2}]
    rows = make_rows("tiny-9b", points, {"alpha": [2.0, 3.0]}, run_id="synthetic-1")
    shared = {"kind": "model", "phase": "prefill"}
    table = section_of([rows[0] | shared | SIZES, rows[1] | shared]).table
    assert [cell_of(table, row, "cache") for row in table.rows] == ["9 MiB", ABSENT]


def test_a_kernels_table_has_none_of_them(section_with: Callable[..., Section]) -> None:
    keys = [column.key for column in section_with("kernel", **SIZES).table.columns]
    assert not {"cache", "state", "working"} & set(keys)
