"""The terminal's table fits the terminal and loses the least valuable columns first."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from benchx.reporting import columns, print_run, serving_columns
from benchx.reporting.console import columns_that_fit
from benchx.reporting.document import build_document
from benchx.store import Run


def printed(run: Run, width: int, *, colour: bool = False) -> str:
    out = StringIO()
    system = "truecolor" if colour else None
    print_run(
        run,
        Console(file=out, width=width, force_terminal=colour, color_system=system, highlight=False),
    )
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal(prefill_run: Run, width: int) -> None:
    assert max(len(line) for line in printed(prefill_run, width).splitlines()) <= width


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_cell_is_folded(prefill_run: Run, width: int) -> None:
    rows = [line for line in printed(prefill_run, width).splitlines() if "  ok" in line]
    assert len(rows) == 14


def test_narrow_terminals_lose_tokens_before_the_interval(prefill_run: Run) -> None:
    table = build_document([prefill_run]).sections[0].table
    kept = {
        width: {column.key for column in columns_that_fit(table, width)} for width in (80, 100, 300)
    }
    assert kept[80] < kept[100] < kept[300]
    assert "tok_s" not in kept[100]
    assert {"heads", "seqlens", "backend", "outcome", "time", "interval"} <= kept[80]


def test_columns_that_do_not_fit_are_named(prefill_run: Run) -> None:
    assert "not shown at this width: n, TFLOP/s, GB/s, KV GB/s" in printed(prefill_run, 80)
    assert "not shown" not in printed(prefill_run, 200)


def test_without_colour_the_fastest_still_has_a_mark(prefill_run: Run) -> None:
    text = printed(prefill_run, 100)
    assert "\x1b" not in text
    assert "gamma *" in text


def test_on_a_terminal_the_fastest_is_coloured_too(prefill_run: Run) -> None:
    assert "\x1b[1;32m" in printed(prefill_run, 100, colour=True)


def test_a_run_without_points_says_so(make_run: object, prefill_run: Run) -> None:
    assert callable(make_run)
    assert "no point was measured" in printed(make_run([]), 80)


@pytest.mark.parametrize(
    ("order", "figures"),
    [(serving_columns.DROP_FIRST, serving_columns.FIGURES), (columns.DROP_FIRST, columns.FIGURES)],
)
def test_the_order_of_dropping_names_every_column_once_that_may_go(
    order: tuple[str, ...], figures: tuple[columns.FigureColumn, ...]
) -> None:
    always = {"ttft", "tpot", "output"}
    beside = {"n", "interval", "call", "cost_input", "cost_output", "cost_total"}
    keys = {figure.column.key for figure in figures}
    assert len(set(order)) == len(order)
    assert keys - set(order) == always & keys
    assert set(order) - keys <= beside


def test_a_model_drops_what_a_kernel_drops_and_its_own_columns() -> None:
    own = {"cache", "state", "working", "cost_input", "cost_output", "cost_total"}
    assert set(columns.MODEL_DROP_FIRST) == set(columns.DROP_FIRST) | own
