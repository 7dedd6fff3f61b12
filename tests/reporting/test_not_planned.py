"""What the plan does not hold is told, and told apart from what failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchx.reporting.chart_canvas import themed
from benchx.reporting.document import Section
from benchx.reporting.figures import plan_figures
from benchx.reporting.not_planned import not_planned
from benchx.reporting.theme import styles_for

POINTS = [{"heads": heads, "seqlens": text} for heads in (96, 12) for text in ("8192", "8x1024")]
TIMES = {"alpha": [1.0, 2.0, 3.0, 4.0], "beta": [2.0, 3.0, "oom: memory", 5.0]}
TIMES["gamma"] = TIMES["alpha"]
LINE = "beta, gamma: not asked for at 3 of 4 combinations of inputs"


@pytest.fixture(name="section")
def section_fixture(
    make_rows: Callable[..., Any], section_of: Callable[..., Section]
) -> Callable[[set[str]], Section]:
    def build(left_out: set[str]) -> Section:
        rows = make_rows("kda_prefill", POINTS, TIMES, run_id="r")
        first = rows[0]["group_id"]
        return section_of(
            [row for row in rows if row["backend"] not in left_out or row["group_id"] == first]
        )

    return build


def test_backends_that_the_plan_leaves_out_are_named_with_how_often(
    section: Callable[[set[str]], Section],
) -> None:
    assert not_planned(section({"beta", "gamma"}).frame) == (LINE,)


def test_a_point_that_failed_was_asked_for(section: Callable[[set[str]], Section]) -> None:
    assert not_planned(section(set()).frame) == ()


def test_table_and_figures_of_all_backends_say_so(section: Callable[[set[str]], Section]) -> None:
    found = section({"beta", "gamma"})
    assert LINE in found.table.footnotes
    for plan in plan_figures(found, styles_for(TIMES)).plans:
        if plan.name.endswith(("device-time", "roofline-share")):
            with themed():
                said = " ".join(" ".join(one.get_text() for one in plan.build().texts).split())
            assert f"{LINE}." in said, plan.name
