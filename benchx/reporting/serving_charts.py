"""Which figures a serving section gets, and why one is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.core.outcome import Outcome
from benchx.reporting.chart_canvas import Frame
from benchx.reporting.chart_load import load_lines, quantities
from benchx.reporting.chart_pareto import X, pareto, throughput_column
from benchx.reporting.document import Section, unmeasured
from benchx.reporting.figure_plan import FigureList, FigurePlan, pages, plan_name
from benchx.reporting.numbers import interval_words
from benchx.reporting.serving_layout import (
    SERIES,
    ServingPanel,
    load_axis,
    measured,
    serving_panels,
    with_series,
)
from benchx.reporting.theme import Style, styles_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARETO_PANELS = 6
_LOAD_PANELS = 3


def plan_serving(section: Section) -> FigureList:
    """Throughput against interactivity, and times against load, as far as there is data."""
    if not (section.frame["outcome"] == Outcome.OK.value).any():
        return FigureList(
            plans=(), omissions=(f"{section.table.title}: no figure, no point is ok.",)
        )
    frame = with_series(section.frame)
    panels = serving_panels(frame)
    styles = styles_for(frame[SERIES])
    found = [*_pareto(section, panels, styles), *_load(section, panels, styles)]
    return FigureList(
        plans=tuple(item for item in found if isinstance(item, FigurePlan)),
        omissions=tuple(item for item in found if isinstance(item, str)),
    )


def _pareto(
    section: Section, panels: Sequence[ServingPanel], styles: Mapping[str, Style]
) -> list[FigurePlan | str]:
    what = section.table.title
    y = throughput_column(panels)
    fit = [panel for panel in panels if len(measured(panel.rows, X, y)) > 1]
    if not fit:
        return [f"{what}: no throughput against interactivity, it takes two points with both."]
    unit = " per GPU" if y == metric.OUTPUT_PER_GPU.id else ""
    title = f"{what}: output throughput{unit} against interactivity"
    note = "Line: Pareto front, the points that no other beats in both; right and up are better."
    axis = load_axis(section.frame)
    beside = "" if axis is None else f" Beside the points: {axis.replace('_', ' ')}."
    lack = "" if unit else " Not per GPU: the number of GPUs was not observed for every point."
    return _plans(
        section, fit, title, "throughput", note + beside + lack, _PARETO_PANELS,
        lambda page, frame: pareto(page, y, styles=styles, frame=frame),
    )  # fmt: skip


def _load(
    section: Section, panels: Sequence[ServingPanel], styles: Mapping[str, Style]
) -> list[FigurePlan | str]:
    what, load = section.table.title, load_axis(section.frame)
    if load is None:
        return [f"{what}: no times against load, there is one load."]
    fit = [panel for panel in panels if quantities([panel])]
    if not fit:
        return [f"{what}: no times against load, no point has a time to first token."]
    title = f"{what}: time to first token and per output token against load"
    note = f"Filled: medians over requests. {_bars(section)} {_hollow(section)}"
    return _plans(
        section, fit, title, "latency", note, _LOAD_PANELS,
        lambda page, frame: load_lines(page, load, styles=styles, frame=frame),
    )  # fmt: skip


def _plans(
    section: Section,
    panels: Sequence[ServingPanel],
    title: str,
    kind: str,
    note: str,
    size: int,
    draw: Callable[[Sequence[ServingPanel], Frame], Figure],
) -> list[FigurePlan | str]:
    found: list[FigurePlan | str] = []
    for number, page in enumerate(pages(panels, size)):
        missing = "; ".join(unmeasured([panel.rows for panel in page]))
        notes = (note, f"Without a figure: {missing}.") if missing else (note,)
        frame = Frame(title=title, notes=notes, source=section.header.source_line())
        found.append(
            FigurePlan(
                name=plan_name(section.key, kind, number),
                title=title,
                description=title,
                build=partial(draw, page, frame),
            )
        )
    return found


def _bars(section: Section) -> str:
    column = f"{metric.TTFT.id}_ci_low"
    rows = section.frame
    if column not in rows.columns or not rows[column].notna().any():
        return "No bars: an interval takes three launches."
    counts = rows["launches"][rows[column].notna()]
    return f"Bars: {interval_words(int(min(counts)))}; hidden where smaller than the point."


def _hollow(section: Section) -> str:
    names = [f"{one.id}_p99" for one in (metric.TTFT, metric.TPOT)]
    known = any(name in section.frame and section.frame[name].notna().any() for name in names)
    return "Hollow: 99th percentiles." if known else "No 99th percentiles: too few requests."
