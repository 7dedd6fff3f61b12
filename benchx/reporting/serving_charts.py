"""Which figures a serving section gets, and why one is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.core.outcome import Outcome
from benchx.reporting.chart_canvas import Frame
from benchx.reporting.chart_load import AGAINST_LOAD, AGAINST_PROMPT, quantities, serving_lines
from benchx.reporting.chart_pareto import X, has_intervals, pareto, throughput_column
from benchx.reporting.chart_timeline import timeline_strips
from benchx.reporting.document import Section, unmeasured
from benchx.reporting.figure_plan import FigureList, FigurePlan, pages, plan_name
from benchx.reporting.numbers import interval_words
from benchx.reporting.serving_layout import (
    PROMPT,
    SERIES,
    ServingPanel,
    front,
    load_axis,
    load_panels,
    load_text,
    measured,
    own_load,
    prompt_panels,
    serving_panels,
    with_series,
)
from benchx.reporting.serving_timeline import TimelineSource
from benchx.reporting.theme import Style, styles_for

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_PARETO_PANELS = 6
_LOAD_PANELS = 3
_TIME_LINES = 4
_NO_BARS = "No bars: an interval takes three launches."


def plan_serving(section: Section) -> FigureList:
    """Throughput against interactivity, times against load and against length, with data only."""
    if not (section.frame["outcome"] == Outcome.OK.value).any():
        return FigureList(
            plans=(), omissions=(f"{section.table.title}: no figure, no point is ok.",)
        )
    frame = with_series(section.frame)
    panels = serving_panels(frame)
    styles = styles_for(frame[SERIES])
    found = [
        *_pareto(section, panels, styles),
        *_load(section, frame, styles),
        *_prompts(section, frame, styles),
        *_timelines(section, panels),
    ]
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
    note = f"{_front_note(fit, y)}; right and up are better. {_bars_of_both(section, fit, y)}"
    axis = load_axis(section.frame)
    beside = "" if axis is None else f" Beside the points: {axis.replace('_', ' ')}."
    lack = "" if unit else " Not per GPU: the number of GPUs was not observed for every point."
    return _plans(
        section, fit, title, "throughput", note + beside + lack, _PARETO_PANELS,
        lambda page, frame: pareto(page, y, styles=styles, frame=frame),
    )  # fmt: skip


def _bars_of_both(section: Section, panels: Sequence[ServingPanel], y: str) -> str:
    """What the bars across and upright are."""
    if not has_intervals(panels, X):
        return _NO_BARS
    counts = section.frame["launches"][section.frame[f"{metric.INTERACTIVITY.id}_ci_low"].notna()]
    which = "" if has_intervals(panels, y) else " of interactivity"
    words = interval_words(int(min(counts)))
    return f"Bars{which}: {words}; hidden where smaller than the point."


def _front_note(panels: Sequence[ServingPanel], y: str) -> str:
    """What the line is, or why there is none: a front of one point has no length."""
    fronts = [
        front([(float(row[X]), float(row[y])) for _, row in measured(panel.rows, X, y).iterrows()])
        for panel in panels
    ]
    if all(len(best) == 1 for best in fronts):
        return "No line: one point is the best in both"
    return "Line: Pareto front, the points that no other beats in both"


def _load(
    section: Section, frame: pd.DataFrame, styles: Mapping[str, Style]
) -> list[FigurePlan | str]:
    what, load = section.table.title, load_axis(section.frame)
    if load is None:
        return [f"{what}: no times against load, there is one load."]
    panels = load_panels(frame, load)
    if not panels:
        return [f"{what}: no times against load, no line has a time to first token at two loads."]
    title = f"{what}: time to first token and per output token against load"
    note = f"Filled: medians over requests. {_bars(section)} {_hollow(section)}"
    return _plans(
        section, panels, title, "latency", note, _LOAD_PANELS,
        lambda page, frame: serving_lines(page, load, AGAINST_LOAD, styles=styles, frame=frame),
    )  # fmt: skip


def _prompts(
    section: Section, frame: pd.DataFrame, styles: Mapping[str, Style]
) -> list[FigurePlan | str]:
    """Nothing is missing where the prompts of a sweep are all of one length."""
    panels = prompt_panels(frame)
    if not panels:
        return []
    kv = ""
    if metric.KV_THROUGHPUT_BITS.id in quantities(panels, AGAINST_PROMPT):
        kv = " and KV throughput"
    title = f"{section.table.title}: time to first token{kv} against prompt length"
    note = f"{_lowest_load(panels, load_axis(section.frame))}Filled: medians. {_bars(section)}"
    return _plans(
        section, panels, title, "prompts", note, _LOAD_PANELS,
        lambda page, frame: serving_lines(page, PROMPT, AGAINST_PROMPT, styles=styles, frame=frame),
    )  # fmt: skip


def _lowest_load(panels: Sequence[ServingPanel], axis: str | None) -> str:
    if axis is None:
        return ""
    loads = sorted({float(value) for panel in panels for value in panel.rows[axis]})
    return f"At {axis.replace('_', ' ')} {', '.join(load_text(axis, one) for one in loads)}. "


def _timelines(section: Section, panels: Sequence[ServingPanel]) -> list[FigurePlan | str]:
    """The highest load of each line of each workload: there a server shows what limits it."""
    what = section.table.title
    stored = {one.point_id: one for one in section.timelines if one.has_requests}
    if not stored:
        return [f"{what}: no time line, the run folder holds no readable requests."]
    axis, rows = load_axis(section.frame), []
    for panel in panels:
        for _, own in panel.rows.groupby(SERIES, sort=False):
            kept = own[own["point_id"].isin(list(stored))]
            highest = max((row for _, row in kept.iterrows()), key=_load_height, default=None)
            rows += [] if highest is None else [(panel, highest)]
    busy = [(panel, row) for panel, row in rows if not _is_one_by_one(row)]
    lone = len(rows) - len(busy) if busy else 0
    rows = busy or rows
    shown = [rows[place] for place in _busiest([row for _, row in rows])]
    found: list[FigurePlan | str] = [
        _timeline(section, stored[str(row["point_id"])], _words(panel, row, axis, section), number)
        for number, (panel, row) in enumerate(shown)
    ]
    if len(rows) > _TIME_LINES:
        which = "first" if axis is None else "busiest"
        found.append(f"{what}: time lines of the {which} {_TIME_LINES} of {len(rows)} lines only.")
    if lone:
        lines = "1 line" if lone == 1 else f"{lone} lines"
        found.append(f"{what}: no time line of {lines} with one request at a time.")
    return found


def _is_one_by_one(row: pd.Series) -> bool:
    """Whether one request followed the other: over time, that shows nothing but their number."""
    return own_load(row) == ("concurrency", 1.0)


def _busiest(rows: Sequence[pd.Series]) -> list[int]:
    """Places of those with the highest loads, of equals the longest prompts, in plan order."""

    def height(place: int) -> tuple[float, float]:
        return -_load_height(rows[place]), -_number(rows[place].get(PROMPT))

    by_load = sorted(range(len(rows)), key=height)
    return sorted(by_load[:_TIME_LINES])


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not math.isnan(value) else 0.0


def _load_height(row: pd.Series) -> float:
    own = own_load(row)
    return 0.0 if own is None else own[1]


def _words(panel: ServingPanel, row: pd.Series, axis: str | None, section: Section) -> str:
    """What tells a point from the others: its load, workload and settings."""
    names = {"request_rate": "rate"}
    own = None if axis is None else own_load(row)
    load = [] if own is None else [f"{names.get(own[0], own[0])} {load_text(*own)}"]
    series = row[SERIES] if len(set(with_series(section.frame)[SERIES])) > 1 else ""
    return ", ".join(word for word in (*load, panel.title, series) if word)


def _timeline(section: Section, source: TimelineSource, words: str, number: int) -> FigurePlan:
    title = f"{section.table.title}: time line" + (f" at {words}" if words else "")
    return FigurePlan(
        name=plan_name(section.key, "timeline", number),
        title=title,
        description=f"{title}: requests in flight, output tokens per second, KV cache in use",
        build=partial(_draw_timeline, source, title, section),
    )


def _draw_timeline(source: TimelineSource, title: str, section: Section) -> Figure:
    line = source.read()
    notes = [f"Launch {source.launch + 1}, by the client's clock, tokens per {line.bin_s:.2g} s."]
    if line.steady_s is None:
        notes.append("No steady state: the load was not full for two lifetimes of a request.")
    else:
        notes.append("Shaded: the steady state, in which the load was full.")
    if line.failed_s:
        notes.append(f"x: {len(line.failed_s)} requests that were not ok, at their end.")
    readings = len(line.kv_usage.times_s)
    if not readings:
        notes.append("The server does not tell how much of its KV cache is in use.")
    elif not line.shows_kv_usage:
        times = "once" if readings == 1 else f"{readings} times"
        notes.append(
            f"The server's use of the KV cache was read {times} only, too seldom to be drawn."
        )
    words = (" ".join(notes), *_what_ran(section))
    frame = Frame(title=title, notes=words, source=section.header.source_line())
    return timeline_strips(line, frame)


def _what_ran(section: Section) -> tuple[str, ...]:
    """Model, engine and settings in the words of the table, so that a picture stands alone."""
    caption = section.table.caption
    return (f"{caption[:1].upper()}{caption[1:]}.",) if caption else ()


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
        lack = (f"Without a figure: {missing}.",) if missing else ()
        notes = (note, *lack, *_what_ran(section))
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
        return _NO_BARS
    counts = rows["launches"][rows[column].notna()]
    return f"Bars: {interval_words(int(min(counts)))}; hidden where smaller than the point."


def _hollow(section: Section) -> str:
    names = [f"{one.id}_p99" for one in (metric.TTFT, metric.TPOT)]
    known = any(name in section.frame and section.frame[name].notna().any() for name in names)
    return "Hollow: 99th percentiles." if known else "No 99th percentiles: too few requests."
