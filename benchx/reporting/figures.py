"""Which figures a section gets, and why one is missing; drawing waits until a sink asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchx.reporting.chart_bandwidth import PANELS_PER_PAGE, bandwidth_lines
from benchx.reporting.chart_latency import DEVICE_TIME, Quantity, latency_dots, latency_lines
from benchx.reporting.chart_layout import (
    Category,
    Lines,
    apart_of,
    categories_of,
    common_text,
    lines_of,
    lines_over_length,
    scaling_of,
)
from benchx.reporting.chart_roofline import roofline, roofline_points
from benchx.reporting.chart_roofline_share import share_dots
from benchx.reporting.chart_series import series_of
from benchx.reporting.chart_sizes import Sizes, size_styles, sizes_of
from benchx.reporting.chart_speedup import (
    NEAR_ONE,
    SLOWEST_DRAWN,
    mean_text,
    slowest_drawn,
    speedup_dots,
)
from benchx.reporting.document import Section
from benchx.reporting.figure_frame import (
    Drawing,
    bars_note,
    frame_of,
    frame_with,
    missing_note,
    points_note,
    short_forms_note,
    subject_notes,
)
from benchx.reporting.figure_plan import FigureList, FigurePlan, pages, plan_name
from benchx.reporting.frame import ok_rows
from benchx.reporting.kv_rate import NOTE, kv_rates
from benchx.reporting.serving_charts import plan_serving
from benchx.reporting.theme import Style, styles_for

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_PANELS_PER_PAGE = 6
_ROWS_PER_PAGE = 36
_BANDWIDTH_NOTE = "Bandwidth: least bytes to be moved / device time, both axes logarithmic."


def plan_figures(section: Section, styles: Mapping[str, Style]) -> FigureList:
    """Device time, scaling with length, KV throughput, speed-up and roofline, as far as known.

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
    drawing = _drawing(section, styles)
    found = [
        *_device_time(drawing),
        *_scaling(drawing),
        *_kv_throughput(drawing),
        *_speed_up(drawing),
        *_roofline_share(drawing),
        *_roofline(drawing),
    ]
    return FigureList(
        plans=tuple(item for item in found if isinstance(item, FigurePlan)),
        omissions=tuple(item for item in found if isinstance(item, str)),
    )


def _drawing(section: Section, styles: Mapping[str, Style]) -> Drawing:
    series = series_of(section.frame)
    own = styles_for(series.frame["backend"]) if series.note else styles
    return Drawing(section=section, frame=series.frame, styles=own, note=series.note)


def _bandwidth(section: Section, sizes: Sizes) -> tuple[FigurePlan, ...]:
    """The backends of equal inputs lie in one panel: their ratio needs no figure of its own."""
    title = f"{section.table.title}: bandwidth over the size of a block"
    shown = [panel for panel in sizes.panels if panel.measured()]
    styles = size_styles(shown)
    lines = [line for panel in sizes.panels for line in panel.lines]
    drawing = Drawing(section=section, frame=section.frame, styles={})
    named = [line.rows.assign(backend=line.name) for line in lines]
    notes = (points_note(section.frame), short_forms_note(drawing, named), missing_note(named))
    frame = frame_with(drawing, title, _BANDWIDTH_NOTE, *notes)
    return tuple(
        FigurePlan(
            name=plan_name(section.key, "bandwidth", number),
            title=title,
            description=f"{title}, in GB/s; panels: {'; '.join(panel.title for panel in page)}",
            build=partial(bandwidth_lines, page, sizes.axis, styles=styles, frame=frame),
        )
        for number, page in enumerate(pages(shown, PANELS_PER_PAGE))
    )


def _device_time(drawing: Drawing) -> list[FigurePlan | str]:
    plan, title = lines_of(drawing.frame), f"{drawing.what}: device time"
    if _is_single(drawing):
        return [f"{drawing.what}: no figure of device times, there is one row of inputs."]
    if plan is None:
        return _dot_pages(drawing, drawing.frame, title, "device-time")
    found = _line_pages(drawing, plan, title, "device-time")
    if plan.apart:
        rest = apart_of(drawing.frame, plan)
        where = common_text(drawing.frame, rest) or "the points that no line holds"
        found += _dot_pages(drawing, rest, f"{title} at {where}", "device-time-apart")
    return found


def _dot_pages(
    drawing: Drawing, rows: pd.DataFrame, title: str, kind: str
) -> list[FigurePlan | str]:
    return [
        FigurePlan(
            name=plan_name(drawing.section.key, kind, number),
            title=title,
            description=f"{title} in ms per backend, one row per combination of inputs",
            build=partial(
                latency_dots,
                page,
                styles=drawing.styles,
                frame=frame_of(drawing, title, [category.rows for category in page]),
            ),
        )
        for number, page in enumerate(pages(categories_of(rows), _ROWS_PER_PAGE))
    ]


def _is_single(drawing: Drawing) -> bool:
    """Whether all ok points had equal inputs."""
    return int(ok_rows(drawing.section.frame)["group_id"].nunique()) < 2


def _scaling(drawing: Drawing) -> list[FigurePlan | str]:
    plan = scaling_of(drawing.frame) if lines_of(drawing.frame) is None else None
    title = f"{drawing.what}: device time of one sequence against its length"
    return _line_pages(drawing, plan, title, "scaling") if plan else []


def _kv_throughput(drawing: Drawing) -> list[FigurePlan | str]:
    """Over the length of single sequences; nothing is missing where no cache is made of them."""
    rates = kv_rates(drawing.frame)
    plan = lines_over_length(rates.frame) if rates else None
    if rates is None or plan is None:
        return []
    title = f"{drawing.what}: KV throughput against sequence length"
    return _line_pages(drawing, plan, title, "kv-throughput", rates.what, NOTE)


def _line_pages(
    drawing: Drawing,
    plan: Lines,
    title: str,
    kind: str,
    what: Quantity = DEVICE_TIME,
    note: str = "",
) -> list[FigurePlan | str]:
    unit = what.label.rpartition(", ")[2]
    return [
        FigurePlan(
            name=plan_name(drawing.section.key, kind, number),
            title=title,
            description=f"{title} in {unit} per backend, over {plan.x}, both axes logarithmic",
            build=partial(
                latency_lines,
                replace(plan, panels=tuple(page)),
                what,
                styles=drawing.styles,
                frame=frame_of(drawing, title, [one.rows for one in page], note, plan.note),
                is_y_shared=not drawing.note,
            ),
        )
        for number, page in enumerate(pages(plan.panels, _PANELS_PER_PAGE))
    ]


def _speed_up(drawing: Drawing) -> list[FigurePlan | str]:
    section = drawing.section
    if not section.speed_ups:
        return [f"{drawing.what}: no speed-up figure, no two backends are ok on equal inputs."]
    if _is_single(drawing):
        return []
    title = f"{drawing.what}: speed-up over {section.baseline}"
    measured = {one.group_id for one in section.speed_ups}
    rows = [
        category
        for category in categories_of(section.frame)
        if str(category.rows["group_id"].iloc[0]) in measured
    ]
    means = "; ".join(mean_text(mean) for mean in section.means)
    note = (
        f"{bars_note(section.frame)} Figures beside the names, and lines: geometric means (over "
        f"how many of the inputs); no line within {100 * NEAR_ONE:g} % of 1."
    )
    if slowest_drawn(section.speed_ups):
        note = f"{note} Arrows: below {SLOWEST_DRAWN:g}, off the scale."
    return [
        FigurePlan(
            name=plan_name(section.key, "speed-up", number),
            title=title,
            description=f"{title}; {means}",
            build=partial(_draw_speed_up, page, drawing, title, note),
        )
        for number, page in enumerate(pages(rows, _ROWS_PER_PAGE))
    ]


def _draw_speed_up(page: Sequence[Category], drawing: Drawing, title: str, note: str) -> Figure:
    section, shown = drawing.section, [category.rows for category in page]
    notes = (note, *subject_notes(drawing, shown), short_forms_note(drawing, shown))
    frame = frame_with(drawing, title, *notes)
    return speedup_dots(page, section.speed_ups, section.means, styles=drawing.styles, frame=frame)


def _roofline_share(drawing: Drawing) -> list[FigurePlan | str]:
    """Of kernels; nothing is missing where no ceilings were measured: the roofline's line says so.

    A model's time holds more than its least work: its share is in the table.
    """
    rows = ok_rows(drawing.frame)
    known = rows[rows["roofline_share"].notna() & (rows["kind"] == "kernel")]
    if known.empty or _is_single(drawing):
        return []
    title = f"{drawing.what}: share of the roofline"
    note = "Share: least time by the measured ceilings / device time."
    groups = set(known["group_id"])
    found = [one for one in categories_of(drawing.frame) if one.rows["group_id"].iloc[0] in groups]
    return [
        FigurePlan(
            name=plan_name(drawing.section.key, "roofline-share", number),
            title=title,
            description=f"{title} in % per backend, one row per combination of inputs",
            build=partial(
                share_dots,
                page,
                styles=drawing.styles,
                frame=frame_of(drawing, title, [category.rows for category in page], note),
            ),
        )
        for number, page in enumerate(pages(found, _ROWS_PER_PAGE))
    ]


def _roofline(drawing: Drawing) -> list[FigurePlan | str]:
    title = f"{drawing.what}: attained rate under the measured ceilings"
    ceilings = drawing.section.header.ceilings
    if ceilings is None:
        return [f"{drawing.what}: no roofline, the run holds no measured ceilings."]
    points = roofline_points(drawing.frame)
    if points.empty:
        return [f"{drawing.what}: no roofline, no point has both rates."]
    note = "One point per combination of inputs; ceilings measured on the same device."
    frame = frame_with(drawing, title, note, *subject_notes(drawing, [points]))
    return [
        FigurePlan(
            name=plan_name(drawing.section.key, "roofline", 0),
            title=title,
            description=f"{title}: {ceilings.text()}",
            build=partial(roofline, points, ceilings, styles=drawing.styles, frame=frame),
        )
    ]
