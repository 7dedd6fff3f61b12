"""Everything a report shows, computed once; the sinks only lay it out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchx.core.errors import UsageError, suggestion
from benchx.core.outcome import Outcome
from benchx.reporting.frame import backend_order, load_frame, ok_rows
from benchx.reporting.header import Header, header_of
from benchx.reporting.method import method_lines
from benchx.reporting.model_cost import SLICE_COST, model_costs, priced_models
from benchx.reporting.serving_facts import SERVING, Deployment, deployments
from benchx.reporting.serving_table import serving_table
from benchx.reporting.serving_timeline import TimelineSource, sources
from benchx.reporting.speedup import (
    MeanSpeedUp,
    SpeedUp,
    choose_baseline,
    mean_speed_ups,
    speed_ups,
)
from benchx.reporting.table import MODEL, OperatorTable, operator_table
from benchx.reporting.theme import Style, styles_for
from benchx.store import Run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Section:
    """One operator, one phase of a model, or the serving points of one data set, in one run.

    Attributes:
        key: Unique in the document, fit for a file name.
        op: Operator, model or data set.
        is_serving: Whether its rows are serving points, which have no speed-ups.
        baseline: The backend whose speed counts as 1; None when nothing was ok.
        speed_ups: Of the backends in `means`.
        incomparable: Backends that were ok but share no input with all others, see
            `mean_speed_ups`.
        timelines: Where the loads of serving points are stored.
    """

    key: str
    op: str
    is_serving: bool = False
    header: Header
    frame: pd.DataFrame
    table: OperatorTable
    baseline: str | None
    speed_ups: tuple[SpeedUp, ...]
    means: tuple[MeanSpeedUp, ...]
    incomparable: tuple[str, ...] = ()
    timelines: tuple[TimelineSource, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """One run: its header, how it was measured, and its operators."""

    header: Header
    method: tuple[str, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report before it is laid out.

    Attributes:
        frame: All rows of all runs.
        styles: One style per backend, the same in every figure.
    """

    frame: pd.DataFrame
    runs: tuple[RunPart, ...]
    styles: Mapping[str, Style]

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections of all runs."""
        return tuple(section for part in self.runs for section in part.sections)


def build_document(runs: Sequence[Run], *, baseline: str | None = None) -> Document:
    """Compute tables and speed-ups.

    Args:
        runs: As read from their folders.
        baseline: Backend for speed-ups; None chooses per operator (see `choose_baseline`).

    Raises:
        UsageError: When no row has the backend `baseline`, or a run is given twice.
    """
    frame = load_frame(runs)
    order = backend_order(frame)
    if baseline is not None and baseline not in order:
        raise UsageError(f"no result has a backend {baseline!r}; {suggestion(baseline, order)}")
    _refuse_twice(runs)
    parts = []
    for number, run in enumerate(runs, start=1):
        prefix = f"run{number}-" if len(runs) > 1 else ""
        rows = frame[frame["run_id"] == run.meta.run_id]
        parts.append(_run_part(run, rows, prefix=prefix, baseline=baseline))
    return Document(frame=frame, runs=tuple(parts), styles=styles_for(order))


def _refuse_twice(runs: Sequence[Run]) -> None:
    names = [run.meta.run_id for run in runs]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise UsageError(f"run {twice[0]} is given twice", hint="name each run once")


def _run_part(run: Run, rows: pd.DataFrame, *, prefix: str, baseline: str | None) -> RunPart:
    header = header_of(run)
    known, priced = deployments(run), priced_models(run)
    is_serving = rows["kind"] == SERVING
    others, served = rows[~is_serving], rows[is_serving]
    sections = []
    for (op, phase), frame in _by_subject(others):
        key = prefix + _file_word("-".join([op, phase] if phase else [op]))
        sections.append(_section(key, op, header, frame, baseline, priced))
    for name in dict.fromkeys(served["op"]):
        frame = served[served["op"] == name]
        key = f"{prefix}serving-{_file_word(str(name))}"
        section = _serving_section(key, str(name), header, frame, known)
        sections.append(replace(section, timelines=sources(run)))
    return RunPart(header=header, method=method_lines(run), sections=tuple(sections))


def _by_subject(rows: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Rows per operator, or per model and phase: prefill and decode have no axes in common."""
    subjects = [
        (str(row["op"]), str(row["phase"]) if row["kind"] == MODEL else "")
        for _, row in rows.iterrows()
    ]
    return [
        (subject, rows[[one == subject for one in subjects]]) for subject in dict.fromkeys(subjects)
    ]


def _serving_section(
    key: str, name: str, header: Header, frame: pd.DataFrame, known: Mapping[str, Deployment]
) -> Section:
    return Section(
        key=key,
        op=name,
        is_serving=True,
        header=header,
        frame=frame,
        table=serving_table(frame, known),
        baseline=None,
        speed_ups=(),
        means=(),
    )


def _file_word(op: str) -> str:
    """An operator's or model's name (or path) without dots and separators, as figures need it."""
    return re.sub(r"[^\w-]+", "-", op)


def _section(
    key: str,
    op: str,
    header: Header,
    frame: pd.DataFrame,
    baseline: str | None,
    priced: Mapping[str, Deployment],
) -> Section:
    has_wanted = baseline is not None and bool((ok_rows(frame)["backend"] == baseline).any())
    chosen = baseline if has_wanted else choose_baseline(frame)
    found = speed_ups(frame, chosen) if chosen else ()
    means = mean_speed_ups(frame, found, baseline=chosen) if chosen else ()
    compared = {mean.backend for mean in means}
    sliced = any("slice_" in str(notes) for notes in frame["notes"])
    return Section(
        key=key,
        op=op,
        header=header,
        frame=frame,
        table=operator_table(
            frame, model_costs(frame, priced), cost_note=SLICE_COST if sliced else ""
        ),
        baseline=chosen,
        speed_ups=tuple(one for one in found if one.backend in compared),
        means=means,
        incomparable=tuple(
            dict.fromkeys(one.backend for one in found if one.backend not in compared)
        ),
    )


def unmeasured(parts: Sequence[pd.DataFrame]) -> tuple[str, ...]:
    """`fla: skipped at 10 of 16 points` for each backend that has points without a figure."""
    import pandas as pd

    lines = []
    frame = pd.concat(parts)
    names = frame["backend"].where(frame["backend"].notna(), frame["engine"])
    for backend, rows in frame.groupby(names, sort=False):
        counts = rows["outcome"].value_counts(sort=False)
        words = [
            f"{word} at {count} of {len(rows)} points"
            for word, count in counts.items()
            if word != Outcome.OK.value
        ]
        lines += [f"{backend}: {', '.join(words)}"] if words else []
    return tuple(lines)
