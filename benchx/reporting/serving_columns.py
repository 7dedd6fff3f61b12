"""The figures of a serving table, their units, and which go first in a narrow terminal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchx.core import metric
from benchx.reporting import numbers
from benchx.reporting.columns import Column, FigureColumn

if TYPE_CHECKING:
    import pandas as pd


DROP_FIRST = (
    "n",
    "kv_gb",
    "attainment",
    "queue",
    "steady",
    "cost_input",
    "cost_total",
    "cost_output",
    "energy",
    "kv_usage",
    "tpot_p99",
    "external_hits",
    "hits",
    "preemptions",
    "acceptance",
    "ttft_p99",
    "spent",
    "goodput",
    "achieved",
    "offered",
    "output_len",
    "input",
    "e2e",
    "kv_gbit",
    "interactivity",
    "output_per_gpu",
    "errors",
    "slo_rate",
    "slo_session_rate",
    "slo_concurrency",
)
"""Keys of the columns that a narrow terminal may drop, in that order; the others always stay."""

_ASKED = {metric.INPUT_TOKENS.id: "input_len", metric.OUTPUT_TOKENS.id: "output_len"}
"""Figures that get a column only where they are not what was asked for, within 2 %."""

_SAID_IF_ANY = tuple(
    one.id
    for one in (metric.KV_USAGE, metric.PREFIX_HITS, metric.EXTERNAL_HITS, metric.PREEMPTIONS)
)
"""Figures that get a column only where one is above 0: usually none of it happens."""


def _three(value: float) -> str:
    return numbers.digits(value, 3)


def _percent_if_any(share: float) -> str:
    """Requests that run take up cache, so a share of 0 was read only while none ran."""
    return numbers.percent(share) if share > 0 else numbers.ABSENT


def _figure(
    *,
    key: str,
    heading: str,
    source: str,
    legend: str = "",
    text: Callable[[float], str] = _three,
) -> FigureColumn:
    return FigureColumn(
        column=Column(key=key, heading=heading, legend=legend), source=source, text=text
    )


FIGURES = (
    _figure(
        key="input",
        heading="tok in",
        source=metric.INPUT_TOKENS.id,
        legend="mean length of the prompts, as the server counts",
    ),
    _figure(
        key="output_len",
        heading="tok out",
        source=metric.OUTPUT_TOKENS.id,
        legend="mean length of the answers",
    ),
    _figure(
        key="ttft",
        heading="TTFT ms",
        source=metric.TTFT.column("p50"),
        legend="sent to first token, median over requests",
    ),
    _figure(
        key="ttft_p99",
        heading="TTFT p99",
        source=metric.TTFT.column("p99"),
    ),
    _figure(
        key="tpot",
        heading="TPOT ms",
        source=metric.TPOT.column("p50"),
        legend="time per output token after the first",
    ),
    _figure(
        key="tpot_p99",
        heading="TPOT p99",
        source=metric.TPOT.column("p99"),
    ),
    _figure(
        key="e2e",
        heading="E2E ms",
        source=metric.E2E.column("p50"),
        legend="sent to last token",
    ),
    _figure(
        key="interactivity",
        heading="tok/s/user",
        source=metric.INTERACTIVITY.column("p50"),
        legend="interactivity, 1000 / TPOT of each request",
    ),
    _figure(
        key="output",
        heading="out tok/s",
        source=metric.OUTPUT_THROUGHPUT.id,
        legend="output tokens of ok requests / wall time",
    ),
    _figure(
        key="output_per_gpu",
        heading="out tok/s/GPU",
        source=metric.OUTPUT_PER_GPU.id,
        legend="over the GPUs observed",
    ),
    _figure(
        key="kv_gbit",
        heading="KV Gbit/s",
        source=metric.KV_THROUGHPUT_BITS.id,
        legend="cache and state that a request's prefill leaves / its time",
    ),
    _figure(
        key="kv_gb",
        heading="KV GB/s",
        source=metric.KV_THROUGHPUT.id,
    ),
    _figure(
        key="goodput",
        heading="good req/s",
        source=metric.GOODPUT.id,
        legend="goodput: requests within the SLO / wall time",
    ),
    _figure(
        key="offered",
        heading="offered/s",
        source=metric.OFFERED_RATE.id,
        legend="starts due per second of an open loop",
    ),
    _figure(
        key="achieved",
        heading="% achieved",
        source=metric.ACHIEVED_SHARE.id,
        legend="completions / starts per second: below 100 the server falls behind",
        text=numbers.percent,
    ),
    _figure(
        key="attainment",
        heading="% in SLO",
        source=metric.GOODPUT_SHARE.id,
        legend="of all requests",
        text=numbers.percent,
    ),
    _figure(
        key="steady",
        heading="steady tok/s",
        source=metric.STEADY_OUTPUT.id,
        legend="output while the load was full",
    ),
    _figure(
        key="kv_usage",
        heading="KV used %",
        source=metric.KV_USAGE.id,
        legend="most of the server's cache in use",
        text=_percent_if_any,
    ),
    _figure(
        key="queue",
        heading="queue ms",
        source=metric.SERVER_QUEUE.column("mean"),
        legend="mean wait at the server",
    ),
    _figure(
        key="hits",
        heading="% hits",
        source=metric.PREFIX_HITS.id,
        legend="prompt tokens in the server's own prefix cache",
        text=numbers.percent,
    ),
    _figure(
        key="external_hits",
        heading="% hits outside",
        source=metric.EXTERNAL_HITS.id,
        legend="prompt tokens loaded from beyond the GPU",
        text=numbers.percent,
    ),
    _figure(
        key="preemptions",
        heading="preempted",
        source=metric.PREEMPTIONS.id,
        legend="requests thrown out of the server's cache",
        text="{:.0f}".format,
    ),
    _figure(
        key="acceptance",
        heading="accepted",
        source=metric.ACCEPTANCE.id,
        legend="tokens per step of speculative decoding",
    ),
    _figure(
        key="energy",
        heading="J/tok",
        source=metric.ENERGY.id,
        legend="energy of the GPU per output token",
    ),
    _figure(
        key="slo_concurrency",
        heading="most in SLO",
        source=metric.SLO_CONCURRENCY.id,
        legend="highest concurrency tried within the SLO",
    ),
    _figure(
        key="slo_rate",
        heading="most req/s in SLO",
        source=metric.SLO_RATE.id,
        legend="highest rate tried within the SLO that the server keeps up with",
    ),
    _figure(
        key="slo_session_rate",
        heading="most sessions/s in SLO",
        source=metric.SLO_SESSION_RATE.id,
        legend="highest rate of sessions tried within the SLO that the server keeps up with",
    ),
    _figure(
        key="errors",
        heading="% failed",
        source=metric.ERROR_RATE.id,
        legend="requests that were not ok / all",
        text=numbers.percent,
    ),
    _figure(
        key="spent",
        heading="charged USD",
        source=metric.SPENT.id,
        legend="what the service says it charged",
    ),
)
"""Of a serving table, in order."""


def serving_figures(frame: pd.DataFrame) -> tuple[FigureColumn, ...]:
    """The columns for which a row has a figure, in order."""
    return tuple(figure for figure in FIGURES if _is_worth_a_column(frame, figure))


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
    found = metric.parse_column(figure.source)
    if found is None or found.statistic != "p50":
        return figure.print(value)
    low, high = (row.get(found.metric.column(end), math.nan) for end in ("ci_low", "ci_high"))
    if numbers.is_absent(low) or numbers.is_absent(high):
        return figure.print(value)
    return numbers.with_interval(value, low, high).median
