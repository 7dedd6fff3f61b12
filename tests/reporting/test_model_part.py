"""Figures of a part of a model say which part it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchx.reporting.chart_canvas import themed
from benchx.reporting.document import Section
from benchx.reporting.figures import plan_figures
from benchx.reporting.model_part import part_note, part_words
from benchx.reporting.theme import styles_for

NOTES = ["host_bound", "slice_4_of_27_layers", "widths_divided_by_8"]


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ([NOTES, NOTES], "4 of 27 layers, widths divided by 8"),
        ([NOTES[1:], ["slice_4_of_27_layers"], None],
         "4 of 27 layers (2 of 3 points), widths divided by 8 (1 of 3 points)"),
        ([["host_bound"], ["all_mla"], None], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_slices_and_reductions_are_named_with_how_many_points_have_them(
    notes: list[list[str] | None], words: str
) -> None:
    assert part_words(notes) == words


def test_whole_models_and_kernels_get_no_note() -> None:
    assert part_note([["host_bound"], None]) == ()


def test_every_figure_of_a_sliced_model_names_the_slice(
    make_rows: Callable[..., Any], section_of: Callable[..., Section]
) -> None:
    points = [{"batch": batch} for batch in (1, 2, 4)]
    times = {"alpha": [2.0, 3.0, 4.0], "beta": [2.5, 3.5, 4.5]}
    rows = make_rows("tiny-9b", points, times, run_id="synthetic-1")
    sliced = {"kind": "model", "phase": "decode", "notes": NOTES}
    section = section_of([row | sliced for row in rows])
    plans = plan_figures(section, styles_for(times)).plans
    assert len(plans) >= 3
    for plan in plans:
        with themed():
            said = " ".join(text.get_text() for text in plan.build().texts)
        assert "Not the whole model: 4 of 27 layers, widths divided by 8" in said, plan.name
