"""What a million tokens cost at the model level: of one GPU, of the layers that ran, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchx.core.point import Point
from benchx.reporting.document import Section, build_document
from benchx.reporting.table import cell_of
from benchx.store import PlanEntry, Run

RunMaker = Callable[..., Run]
RENTAL = {"hardware": "auto", "prices": "rental"}
H200 = {"name": "NVIDIA H200", "count": 1, "arch": "sm_90", "torch_type": "cuda"}
CPU = {"name": "Abacus 9", "count": 1, "arch": "x86_64", "torch_type": "cpu"}


@pytest.fixture
def section_of(make_rows: Callable[..., Any], make_run: RunMaker) -> Callable[..., Section]:
    def build(
        phase: str,
        *,
        cost: Mapping[str, str] | None = RENTAL,
        device: Mapping[str, Any] = H200,
        notes: list[str] | None = None,
    ) -> Section:
        points = [{"phase": phase, "batch": batch} for batch in (1, 8)]
        rows = make_rows("tiny-9b", points, {"alpha": [2.0, 4.0]}, run_id="synthetic-1")
        plan = []
        for row, params in zip(rows, points, strict=True):
            point = Point(kind="model", subject="tiny-9b", backend="alpha", params=params)
            plan.append(PlanEntry(point, 1))
            row |= {
                "kind": "model", "point_id": point.point_id, "group_id": point.group_id,
                "token_throughput_tok_s": 4000.0 * params["batch"], "notes": notes,
            }  # fmt: skip
        run = make_run(rows)
        part = {"kind": "model", "measure": {"launches": 3, "cache": "cold"}, "cost": cost}
        meta = replace(run.meta, plan=tuple(plan), resolved={**run.meta.resolved, "parts": [part]})
        launches = tuple(replace(launch, device=device) for launch in run.launches)
        (section,) = build_document([replace(run, meta=meta, launches=launches)]).sections
        return section

    return build


def costs_in(section: Section) -> dict[str, list[float]]:
    keys = [column.key for column in section.table.columns if column.key.startswith("cost_")]
    rows = section.table.rows
    return {key: [float(cell_of(section.table, row, key)) for row in rows] for key in keys}


@pytest.mark.parametrize(("phase", "kind"), [("prefill", "input"), ("decode", "output")])
def test_prefill_is_charged_to_input_tokens_and_decode_to_output_tokens(
    section_of: Callable[..., Section], phase: str, kind: str
) -> None:
    found = costs_in(section_of(phase))
    dollars = [2.90 / 3600 / rate * 1e6 for rate in (4000, 32000)]  # an H200 is rented for 2.90
    assert list(found) == [f"cost_{kind}"]
    assert found[f"cost_{kind}"] == pytest.approx(dollars, rel=5e-3)


def test_the_price_and_its_formula_are_named(section_of: Callable[..., Section]) -> None:
    text = "\n".join(section_of("decode").table.footnotes)
    for word in ("formula gpu_hour", "rental", "2026-07", "SemiAnalysis", "x 1 GPU ("):
        assert word in text


def test_the_cost_of_a_slice_says_that_it_is_none_of_the_model(
    section_of: Callable[..., Section],
) -> None:
    told = "cost of the layers that ran, not of the whole model"
    assert told in section_of("decode", notes=["slice_4_of_27_layers"]).table.footnotes
    assert told not in section_of("decode").table.footnotes


@pytest.mark.parametrize(
    ("cost", "device", "reason"),
    [
        (RENTAL, CPU, "no GPU was in use"),
        ({"hardware": "h200", "prices": "rental"}, CPU, "no GPU was in use"),
        (RENTAL, H200 | {"name": "Abacus 9"}, "Abacus 9 is not in the table of hardware"),
        ({"hardware": "h200", "prices": "lottery"}, H200, "unknown price tier"),
    ],
)
def test_an_unknown_price_gives_no_number_and_says_why(
    section_of: Callable[..., Section],
    cost: Mapping[str, str],
    device: Mapping[str, Any],
    reason: str,
) -> None:
    section = section_of("prefill", cost=cost, device=device, notes=["slice_4_of_27_layers"])
    assert costs_in(section) == {}
    (line,) = [text for text in section.table.footnotes if "cost" in text]
    assert reason in line


def test_a_scenario_without_a_price_says_nothing_of_cost(
    section_of: Callable[..., Section],
) -> None:
    section = section_of("prefill", cost=None)
    assert costs_in(section) == {}
    assert not [text for text in section.table.footnotes if "cost" in text]
