"""The figures of a serving table, their units, and which go first in a narrow terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.reporting import numbers
from benchx.reporting.columns import Column, FigureColumn

if TYPE_CHECKING:
    import pandas as pd


def _three(value: float) -> str:
    return numbers.digits(value, 3)


def _column(key: str, heading: str, source: str, *, keep: int | None, legend: str) -> FigureColumn:
    column = Column(key=key, heading=heading, keep=keep, legend=legend)
    return FigureColumn(column=column, source=source, text=_three)


_OUTPUT = _column(
    "output", "out tok/s", metric.OUTPUT_THROUGHPUT.id, keep=None,
    legend="output tokens of ok requests / wall time",
)  # fmt: skip
_ASKED = {metric.INPUT_TOKENS.id: "input_len", metric.OUTPUT_TOKENS.id: "output_len"}
"""Figures that get a column only where they are not what was asked for, within 2 %."""

_SAID_IF_ANY = (metric.PREFIX_HITS.id, metric.EXTERNAL_HITS.id, metric.PREEMPTIONS.id)
"""Figures that get a column only where one is above 0: usually none of it happens."""

_FIGURES = (
    _column(
        "input", "tok in", metric.INPUT_TOKENS.id, keep=75,
        legend="mean length of the prompts, as the server counts",
    ),
    _column(
        "output_len", "tok out", metric.OUTPUT_TOKENS.id, keep=74,
        legend="mean length of the answers",
    ),
    _column(
        "ttft", "TTFT ms", f"{metric.TTFT.id}_p50", keep=None,
        legend="sent to first token, median over requests",
    ),
    _column("ttft_p99", "TTFT p99", f"{metric.TTFT.id}_p99", keep=60, legend=""),
    _column(
        "tpot", "TPOT ms", f"{metric.TPOT.id}_p50", keep=None,
        legend="time per output token after the first",
    ),
    _column("tpot_p99", "TPOT p99", f"{metric.TPOT.id}_p99", keep=50, legend=""),
    _column("e2e", "E2E ms", f"{metric.E2E.id}_p50", keep=80, legend="sent to last token"),
    _column(
        "interactivity", "tok/s/user", f"{metric.INTERACTIVITY.id}_p50", keep=90,
        legend="interactivity, 1000 / TPOT of each request",
    ),
    _OUTPUT,
    _column(
        "output_per_gpu", "out tok/s/GPU", metric.OUTPUT_PER_GPU.id, keep=110,
        legend="over the GPUs observed",
    ),
    _column(
        "kv_gbit", "KV Gbit/s", metric.KV_THROUGHPUT_BITS.id, keep=85,
        legend="cache and state that a request's prefill leaves / its time",
    ),
    _column("kv_gb", "KV GB/s", metric.KV_THROUGHPUT.id, keep=15, legend=""),
    _column(
        "goodput", "good req/s", metric.GOODPUT.id, keep=70,
        legend="goodput: requests within the SLO / wall time",
    ),
    _column(
        "offered", "offered/s", metric.OFFERED_RATE.id, keep=72,
        legend="starts due per second of an open loop",
    ),
    FigureColumn(
        column=Column(
            key="achieved", heading="% achieved", keep=71,
            legend="completions / starts per second: below 100 the server falls behind",
        ),
        source=metric.ACHIEVED_SHARE.id,
        text=numbers.percent,
    ),
    FigureColumn(
        column=Column(
            key="attainment", heading="% in SLO", keep=20, legend="of all requests"
        ),
        source=metric.GOODPUT_SHARE.id,
        text=numbers.percent,
    ),
    _column(
        "steady", "steady tok/s", metric.STEADY_OUTPUT.id, keep=25,
        legend="output from the first end to the last send",
    ),
    FigureColumn(
        column=Column(
            key="kv_usage", heading="KV used %", keep=48,
            legend="most of the server's cache in use",
        ),
        source=metric.KV_USAGE.id,
        text=numbers.percent,
    ),
    _column(
        "queue", "queue ms", f"{metric.SERVER_QUEUE.id}_mean", keep=22,
        legend="mean wait at the server",
    ),
    FigureColumn(
        column=Column(
            key="hits", heading="% hits", keep=55,
            legend="prompt tokens in the server's own prefix cache",
        ),
        source=metric.PREFIX_HITS.id,
        text=numbers.percent,
    ),
    FigureColumn(
        column=Column(
            key="external_hits", heading="% hits outside", keep=54,
            legend="prompt tokens loaded from beyond the GPU",
        ),
        source=metric.EXTERNAL_HITS.id,
        text=numbers.percent,
    ),
    FigureColumn(
        column=Column(
            key="preemptions", heading="preempted", keep=56,
            legend="requests thrown out of the server's cache",
        ),
        source=metric.PREEMPTIONS.id,
        text=lambda count: f"{count:.0f}",
    ),
    _column(
        "acceptance", "accepted", metric.ACCEPTANCE.id, keep=57,
        legend="tokens per step of speculative decoding",
    ),
    _column(
        "energy", "J/tok", metric.ENERGY.id, keep=46,
        legend="energy of the GPU per output token",
    ),
    _column(
        "slo_concurrency", "most in SLO", metric.SLO_CONCURRENCY.id, keep=120,
        legend="highest concurrency tried within the SLO",
    ),
    _column(
        "slo_rate", "most req/s in SLO", metric.SLO_RATE.id, keep=120,
        legend="highest rate tried within the SLO that the server keeps up with",
    ),
    _column(
        "slo_session_rate", "most sessions/s in SLO", metric.SLO_SESSION_RATE.id, keep=120,
        legend="highest rate of sessions tried within the SLO that the server keeps up with",
    ),
    FigureColumn(
        column=Column(
            key="errors", heading="% failed", keep=115, legend="requests that were not ok / all"
        ),
        source=metric.ERROR_RATE.id,
        text=numbers.percent,
    ),
    _column(
        "spent", "charged USD", metric.SPENT.id, keep=65, legend="what the service says it charged"
    ),
)  # fmt: skip


def serving_figures(frame: pd.DataFrame) -> tuple[FigureColumn, ...]:
    """The columns for which a row has a figure, in order."""
    return tuple(figure for figure in _FIGURES if _is_worth_a_column(frame, figure))


def _is_worth_a_column(frame: pd.DataFrame, figure: FigureColumn) -> bool:
    if figure.source not in frame.columns:
        return False
    values = frame[figure.source]
    if figure.source in _ASKED:
        return _differs(values, frame.get(_ASKED[figure.source]))
    return bool((values > 0).any() if figure.source in _SAID_IF_ANY else values.notna().any())


def _differs(values: pd.Series, asked: pd.Series | None) -> bool:
    """Whether a length is not the one that its row asked for, or none was asked for."""
    if asked is None:
        return bool(values.notna().any())
    for value, wanted in zip(values, asked, strict=True):
        known = isinstance(wanted, int | float)
        if not math.isnan(value) and not (known and abs(value - wanted) <= 0.02 * wanted):
            return True
    return False


def figure_text(row: pd.Series, figure: FigureColumn) -> str:
    """A cell: where launches give an interval, no more digits than it supports."""
    value = row[figure.source]
    base = figure.source.removesuffix("_p50")
    low, high = (row.get(f"{base}_{end}", math.nan) for end in ("ci_low", "ci_high"))
    if base == figure.source or numbers.is_absent(low) or numbers.is_absent(high):
        return figure.print(value)
    return numbers.with_interval(value, low, high).median
