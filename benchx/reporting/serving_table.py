"""The table of the serving points of one data set, in the form that all sinks lay out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.columns import KV_SOURCE
from benchx.core.outcome import Outcome
from benchx.reporting import numbers
from benchx.reporting.columns import Column, FigureColumn
from benchx.reporting.cost_columns import CostColumns
from benchx.reporting.frame import AxisSplit, split_axes, words_of
from benchx.reporting.notes import Footnotes
from benchx.reporting.serving_columns import DROP_FIRST, figure_text, serving_figures
from benchx.reporting.serving_cost import point_cost
from benchx.reporting.serving_facts import Deployment
from benchx.reporting.table import NO_INTERVAL, OperatorTable, Row, count_text, outcome_text
from benchx.reporting.wording import axis_text, fixed_texts

if TYPE_CHECKING:
    import pandas as pd

_ENGINE = Column(key="engine", heading="engine", numeric=False)
_MODEL = Column(key="model", heading="model", numeric=False)
_OUTCOME = Column(key="outcome", heading="outcome", numeric=False)
_COUNT = Column(key="n", heading="n", legend="launches x ok requests (~ on average)")
_NO_DRAFTS_SEEN = (None, "none", "unknown")


def serving_title(dataset: str) -> str:
    """`Serving, random`."""
    return f"Serving, {dataset.replace('_', ' ')}"


def serving_table(frame: pd.DataFrame, known: Mapping[str, Deployment]) -> OperatorTable:
    """The table of one data set.

    Args:
        frame: Serving rows of one data set and one run, at least one.
        known: Point id -> deployment, for every row.
    """
    axes = split_axes(frame)
    models = {str(point): known[str(point)].model for point in frame["point_id"]}
    plan = _Plan(
        axes=axes.varying,
        models=models if len(set(models.values())) > 1 else None,
        figures=serving_figures(frame),
        costs=_costs(frame, known),
    )
    notes = Footnotes()
    rows = tuple(_row(row, plan, notes) for _, row in frame.iterrows())
    dataset = str(frame["op"].iloc[0])
    return OperatorTable(
        op=dataset,
        title=serving_title(dataset),
        subtitle="medians over the ok requests, then over launches",
        caption=_caption(axes, frame, known),
        axes=axes.varying,
        columns=(
            *(Column(key=name, heading=name, numeric=_numeric(frame[name])) for name in plan.axes),
            *(_ENGINE, *([_MODEL] if plan.models else []), _OUTCOME, _COUNT),
            *(figure.column for figure in plan.figures),
            *plan.costs.columns,
        ),
        drop_first=DROP_FIRST,
        rows=rows,
        footnotes=(*_no_interval(frame), *plan.costs.lines(), *notes.texts()),
    )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What the rows of a table have in common."""

    axes: tuple[str, ...]
    models: Mapping[str, str | None] | None
    figures: tuple[FigureColumn, ...]
    costs: CostColumns


def _row(row: pd.Series, plan: _Plan, notes: Footnotes) -> Row:
    outcome, point = Outcome(row["outcome"]), str(row["point_id"])
    figures = [count_text(row), *(figure_text(row, figure) for figure in plan.figures)]
    figures += plan.costs.texts(point)
    model = [] if plan.models is None else [plan.models[point] or numbers.ABSENT]
    return Row(
        cells=(
            *(axis_text(axis, row[axis]) for axis in plan.axes),
            *(str(row["engine"]), *model),
            " ".join([outcome_text(row, outcome, notes), *plan.costs.marks(point, notes)]),
            *(figures if outcome is Outcome.OK else [numbers.ABSENT] * len(figures)),
        ),
        group_id=str(row["group_id"]),
        outcome=outcome,
        is_fastest=False,
    )


def _numeric(values: pd.Series) -> bool:
    return all(isinstance(value, int | float) for value in values if value is not None)


def _caption(axes: AxisSplit, frame: pd.DataFrame, known: Mapping[str, Deployment]) -> str:
    shown = [known[str(point)] for point in frame["point_id"]]
    models = {one.model for one in shown}
    words = [f"model {shown[0].model}"] if len(models) == 1 and shown[0].model else []
    versions = dict.fromkeys(one.version for one in shown if one.version)
    words += [" / ".join(versions)] if versions else []
    words += _caveats(shown)
    words += fixed_texts(axes.fixed)
    states = list(dict.fromkeys(state for cell in frame["cache"] for state in words_of(cell)))
    words += (
        [f"server's prefix cache {'/'.join(states)}"] if states not in ([], ["unknown"]) else []
    )
    words += _prefill_sources(frame)
    limits = dict.fromkeys(" ".join(pair) for one in shown for pair in one.slo.items())
    words += [f"SLO: {', '.join(limits)}"] if limits else []
    return ", ".join(words)


def _caveats(shown: Sequence[Deployment]) -> list[str]:
    """What keeps the figures from being those of the model on real text."""
    words = []
    if any(one.load_format == "dummy" for one in shown):
        words.append("random weights (speed only)")
    modes = [one.acceptance for one in shown if one.acceptance not in _NO_DRAFTS_SEEN]
    words += [f"acceptance of drafts: {mode}" for mode in dict.fromkeys(modes)]
    return words


def _prefill_sources(frame: pd.DataFrame) -> list[str]:
    """Where the prefill time behind KV throughput is from."""
    if KV_SOURCE not in frame.columns:
        return []
    told = {"server": "the server's metrics", "ttft": "TTFT at one request at a time"}
    sources = dict.fromkeys(part for cell in frame[KV_SOURCE] for part in words_of(cell))
    return [f"prefill time: {' / '.join(told[one] for one in sources)}"] if sources else []


def _no_interval(frame: pd.DataFrame) -> list[str]:
    ok = frame[frame["outcome"] == Outcome.OK.value]
    counts = [count for count in ok["launches"] if count is not None]
    return [NO_INTERVAL] if counts and max(counts) < 3 else []


def _costs(frame: pd.DataFrame, known: Mapping[str, Deployment]) -> CostColumns:
    """Costs of the ok points."""
    ok = frame[frame["outcome"] == Outcome.OK.value]
    found = {
        str(row["point_id"]): point_cost(row, known[str(row["point_id"])])
        for _, row in ok.iterrows()
    }
    return CostColumns(found)
