"""Which figures a section gets, and why one is missing; drawing waits until a sink asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchx.reporting.chart_bandwidth import PANELS_PER_PAGE, bandwidth_lines
from benchx.reporting.chart_canvas import Frame
from benchx.reporting.chart_latency import latency_dots, latency_lines
from benchx.reporting.chart_layout import Category, Lines, categories_of, lines_of, scaling_of
from benchx.reporting.chart_roofline import roofline, roofline_points
from benchx.reporting.chart_sizes import Sizes, size_styles, sizes_of
from benchx.reporting.chart_speedup import mean_text, speedup_dots
from benchx.reporting.document import Section, unmeasured
from benchx.reporting.figure_plan import FigureList, FigurePlan, pages, plan_name
from benchx.reporting.frame import interval_launches, ok_rows
from benchx.reporting.model_part import part_note
from benchx.reporting.numbers import interval_words
from benchx.reporting.serving_charts import plan_serving
from benchx.reporting.table import short_forms
from benchx.reporting.theme import Style
from benchx.reporting.wording import plain_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_PANELS_PER_PAGE = 6
_ROWS_PER_PAGE = 36
_BANDWIDTH_NOTE = "Bandwidth: least bytes to be moved / device time, both axes logarithmic."


def plan_figures(section: Section, styles: Mapping[str, Style]) -> FigureList:
    """Device time, scaling with length, speed-up and roofline, as far as there is data.

    Copies have their bandwidth over the size of a block instead, see `sizes_of`. Serving sections
    have figures of their own, see `plan_serving`.
    """
    if section.is_serving:
        return plan_serving(section)
    title = section.table.title
    if ok_rows(section.frame).empty:
        return FigureList(plans=(), omissions=(f"{title}: no figure, no point is ok.",))
    sizes = sizes_of(section.frame)
    if sizes is not None:
        return FigureList(plans=_bandwidth(section, sizes), omissions=())
    found = [
        *_device_time(section, styles),
        *_scaling(section, styles),
        *_speed_up(section, styles),
        *_roofline(section, styles),
    ]
    return FigureList(
        plans=tuple(item for item in found if isinstance(item, FigurePlan)),
        omissions=tuple(item for item in found if isinstance(item, str)),
    )


def _bandwidth(section: Section, sizes: Sizes) -> tuple[FigurePlan, ...]:
    """The backends of equal inputs lie in one panel: their ratio needs no figure of its own."""
    title = f"{section.table.title}: bandwidth over the size of a block"
    shown = [panel for panel in sizes.panels if panel.measured()]
    styles = size_styles(shown)
    lines = [line for panel in sizes.panels for line in panel.lines]
    frame = _frame(section, title, [line.rows.assign(backend=line.name) for line in lines])
    frame = replace(frame, notes=(_BANDWIDTH_NOTE, *frame.notes))
    return tuple(
        FigurePlan(
            name=_name(section, "bandwidth", number),
            title=title,
            description=f"{title}, in GB/s; panels: {'; '.join(panel.title for panel in page)}",
            build=partial(bandwidth_lines, page, sizes.axis, styles=styles, frame=frame),
        )
        for number, page in enumerate(pages(shown, PANELS_PER_PAGE))
    )


def _device_time(section: Section, styles: Mapping[str, Style]) -> list[FigurePlan | str]:
    title = f"{section.table.title}: device time"
    plan = lines_of(section.frame)
    if _is_single(section):
        return [f"{section.table.title}: no figure of device times, there is one row of inputs."]
    if plan is not None:
        return _line_pages(section, styles, plan, title, "device-time")
    sheets = pages(categories_of(section.frame), _ROWS_PER_PAGE)
    return [
        FigurePlan(
            name=_name(section, "device-time", number),
            title=title,
            description=f"{title} in ms per backend, one row per combination of inputs",
            build=partial(
                latency_dots,
                page,
                styles=styles,
                frame=_frame(section, title, [category.rows for category in page]),
            ),
        )
        for number, page in enumerate(sheets)
    ]


def _is_single(section: Section) -> bool:
    return int(ok_rows(section.frame)["group_id"].nunique()) < 2


def _scaling(section: Section, styles: Mapping[str, Style]) -> list[FigurePlan | str]:
    plan = scaling_of(section.frame) if lines_of(section.frame) is None else None
    title = f"{section.table.title}: device time of one sequence against its length"
    return _line_pages(section, styles, plan, title, "scaling") if plan else []


def _line_pages(
    section: Section, styles: Mapping[str, Style], plan: Lines, title: str, kind: str
) -> list[FigurePlan | str]:
    return [
        FigurePlan(
            name=_name(section, kind, number),
            title=title,
            description=f"{title} in ms per backend, over {plan.x}, both axes logarithmic",
            build=partial(
                latency_lines,
                Lines(x=plan.x, panels=tuple(page)),
                styles=styles,
                frame=_frame(section, title, [panel.rows for panel in page]),
            ),
        )
        for number, page in enumerate(pages(plan.panels, _PANELS_PER_PAGE))
    ]


def _speed_up(section: Section, styles: Mapping[str, Style]) -> list[FigurePlan | str]:
    what = section.table.title
    if not section.speed_ups:
        return [f"{what}: no speed-up figure, no two backends are ok on equal inputs."]
    if _is_single(section):
        return []
    title = f"{what}: speed-up over {section.baseline}"
    measured = {one.group_id for one in section.speed_ups}
    rows = [
        category
        for category in categories_of(section.frame)
        if str(category.rows["group_id"].iloc[0]) in measured
    ]
    means = "; ".join(mean_text(mean) for mean in section.means)
    note = (
        f"{_bars(section)} Vertical lines, and the figures beside the names: geometric means "
        "(over how many of the inputs)."
    )
    return [
        FigurePlan(
            name=_name(section, "speed-up", number),
            title=title,
            description=f"{title}; {means}",
            build=partial(
                _draw_speed_up, page, section, styles, Frame(
                    title=title,
                    notes=(
                        note,
                        *_parts([row.rows for row in page]),
                        *_short_forms(section, [row.rows for row in page]),
                    ),
                    source=section.header.source_line(),
                )
            ),
        )
        for number, page in enumerate(pages(rows, _ROWS_PER_PAGE))
    ]  # fmt: skip


def _draw_speed_up(
    page: Sequence[Category], section: Section, styles: Mapping[str, Style], frame: Frame
) -> Figure:
    return speedup_dots(page, section.speed_ups, section.means, styles=styles, frame=frame)


def _roofline(section: Section, styles: Mapping[str, Style]) -> list[FigurePlan | str]:
    title = f"{section.table.title}: attained rate under the measured ceilings"
    ceilings = section.header.ceilings
    if ceilings is None:
        return [f"{section.table.title}: no roofline, the run holds no measured ceilings."]
    points = roofline_points(section.frame)
    if points.empty:
        return [f"{section.table.title}: no roofline, no point has both rates."]
    note = "One point per combination of inputs; ceilings measured on the same device."
    notes = (note, *part_note(points["notes"]))
    frame = Frame(title=title, notes=notes, source=section.header.source_line())
    return [
        FigurePlan(
            name=_name(section, "roofline", 0),
            title=title,
            description=f"{title}: {ceilings.text()}",
            build=partial(roofline, points, ceilings, styles=styles, frame=frame),
        )
    ]


def _frame(section: Section, title: str, shown: Sequence[pd.DataFrame]) -> Frame:
    missing = "; ".join(unmeasured(shown))
    bars = f"Points: medians over the launches. {_bars(section)}"
    lack = (f"Without a figure: {missing}.",) if missing else ()
    notes = (bars, *_parts(shown), *lack, *_short_forms(section, shown))
    return Frame(title=title, notes=notes, source=section.header.source_line())


def _parts(shown: Sequence[pd.DataFrame]) -> tuple[str, ...]:
    """A note on what part of a model ran, where it is not the whole one."""
    return part_note(cell for rows in shown for cell in rows["notes"])


def _short_forms(section: Section, shown: Sequence[pd.DataFrame]) -> tuple[str, ...]:
    """A note on what the shortened lengths of these rows stand for, where there are any."""
    axes = section.table.axes
    there = {plain_text(value) for rows in shown for axis in axes for value in rows[axis]}
    forms = short_forms(section.frame, axes).items()
    told = "; ".join(f"{short}: {full}" for short, full in forms if full in there)
    return (f"{told}.",) if told else ()


def _bars(section: Section) -> str:
    launches = interval_launches(section.frame)
    if launches is None:
        return "No bars: an interval takes three launches."
    return f"Bars: {interval_words(launches)}; hidden where smaller than the point."


def _name(section: Section, kind: str, page: int) -> str:
    return plan_name(section.key, kind, page)
