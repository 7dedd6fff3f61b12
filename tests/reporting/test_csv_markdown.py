"""Files for machines and pages."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd

from benchx.reporting.csv_file import CsvSink
from benchx.reporting.document import build_document
from benchx.reporting.figures import plan_figures
from benchx.reporting.markdown import markdown
from benchx.reporting.sink import Destination
from benchx.store import Run


def test_the_csv_holds_every_figure_unrounded(prefill_run: Run, tmp_path: Path) -> None:
    (path,) = CsvSink().write(build_document([prefill_run]), Destination(folder=tmp_path))
    read = pd.read_csv(path)
    for row, (_, back) in zip(prefill_run.rows, read.iterrows(), strict=True):
        time = row.get("device_time_ms_p50")
        found = float(back["device_time_ms_p50"])
        assert math.isnan(found) if time is None else found == time


def test_absent_is_an_empty_cell_and_never_zero(prefill_run: Run, tmp_path: Path) -> None:
    (path,) = CsvSink().write(build_document([prefill_run]), Destination(folder=tmp_path))
    read = pd.read_csv(path)
    assert read[read["outcome"] != "ok"]["device_time_ms_p50"].isna().all()


def test_every_linked_figure_is_one_that_will_be_drawn(prefill_run: Run, decode_run: Run) -> None:
    document = build_document([prefill_run, decode_run])
    linked = re.findall(r"\]\(figures/(.+?)\.png\)", markdown(document))
    plans = [plan for s in document.sections for plan in plan_figures(s, document.styles).plans]
    assert linked == [plan.name for plan in plans]
    assert len(set(linked)) == len(linked) > 0


def test_every_reason_is_listed_with_its_points(prefill_run: Run) -> None:
    text = markdown(build_document([prefill_run]))
    assert "- alpha, unsupported (3 points): no kernel for this many heads" in text
    assert "- gamma, oom (1 point): out of memory \\| 9 GiB wanted" in text


def test_a_pipe_in_a_reason_does_not_break_the_table(prefill_run: Run) -> None:
    lines = markdown(build_document([prefill_run])).splitlines()
    table = [line for line in lines if line.startswith("| 96 ") or line.startswith("| 12 ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {14}
