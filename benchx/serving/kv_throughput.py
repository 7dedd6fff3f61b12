"""KV throughput of a server: bytes that prefills leave behind / the time that they take.

Only tokens that were computed count: what a cache held was left behind by another prefill. The
time is the server's own where it tells one, else the time to first token, which is a prefill's
only while requests do not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchx.core import metric
from benchx.serving.kv_footprint import KvFootprint
from benchx.serving.metrics import most_in_flight
from benchx.serving.request import RequestOutcome, RequestResult
from benchx.serving.scrape import Series
from benchx.serving.server_summary import computed_share
from benchx.stats.summary import median

PrefillSource = Literal["server", "ttft"]
"""Where the prefill time is from: the server's metrics, or TTFT at one request at a time."""

_SEEN_SHARE = 0.95
"""The server's last observations may be missing from the last reading."""


@dataclass(frozen=True, kw_only=True)
class KvFigures:
    """KV throughput of one load.

    Attributes:
        values: Metric id -> value; empty where there is none.
        source: Of the prefill time.
        missing: Why there is no figure; None when there is one.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    source: PrefillSource | None = None
    missing: str | None = None


def kv_throughput(
    footprint: KvFootprint,
    results: Sequence[RequestResult],
    *,
    series: Series,
    prompts_differ: bool,
) -> KvFigures:
    """The figures of a load, or why there are none.

    Server: mean bytes per request / mean prefill time. TTFT: median over requests of bytes / TTFT.

    Args:
        footprint: Bytes that a token and a sequence leave.
        results: Every request of the load.
        series: What the server told meanwhile.
        prompts_differ: Whether no two prompts share a prefix, nor with any sent before.
    """
    ok = [result for result in results if result.outcome is RequestOutcome.OK]
    tokens = _prefilled(ok, series, prompts_differ=prompts_differ)
    if not ok or tokens is None:
        return KvFigures(missing="how many prompt tokens a cache held is not told")
    seconds = _server_prefill_s(series, ok=len(ok), sent=len(results))
    if seconds is not None:
        size = footprint.token_bytes * sum(tokens) / len(tokens) + footprint.sequence_bytes
        return _figures(footprint, tokens, size / seconds, "server")
    if most_in_flight(results) > 1:
        return KvFigures(missing="the server tells no prefill time and requests overlapped")
    rates = [
        (footprint.token_bytes * count + footprint.sequence_bytes) / time_s
        for result, count in zip(ok, tokens, strict=True)
        if (time_s := _ttft_s(result))
    ]
    if not rates:
        return KvFigures(missing="no answer was streamed from its first token on")
    return _figures(footprint, tokens, median(rates), "ttft")


def _figures(
    footprint: KvFootprint, tokens: Sequence[float], bytes_s: float, source: PrefillSource
) -> KvFigures:
    return KvFigures(
        values={
            metric.KV_CACHE.id: footprint.token_bytes * sum(tokens) / len(tokens),
            metric.KV_STATE.id: float(footprint.sequence_bytes),
            metric.KV_THROUGHPUT.id: bytes_s / 1e9,
            metric.KV_THROUGHPUT_BITS.id: 8 * bytes_s / 1e9,
        },
        source=source,
    )


def _prefilled(
    ok: Sequence[RequestResult], series: Series, *, prompts_differ: bool
) -> list[float] | None:
    """Prompt tokens of each request that were computed; None if that is not known."""
    if any(result.input_tokens is None for result in ok):
        return None
    inputs = [float(result.input_tokens or 0) for result in ok]
    cached = [result.usage.cached_tokens if result.usage else None for result in ok]
    if all(count is not None for count in cached):
        return [tokens - (count or 0) for tokens, count in zip(inputs, cached, strict=True)]
    share = computed_share(series)
    if share is not None:
        return [tokens * share for tokens in inputs]
    return inputs if prompts_differ else None


def _server_prefill_s(series: Series, *, ok: int, sent: int) -> float | None:
    """Mean prefill time of the load's own requests; None where others' are among them."""
    observed = series.increase("prefill_s_count")
    if not observed or not _SEEN_SHARE * ok <= observed <= sent:
        return None
    return series.mean_of_histogram("prefill_s") or None


def _ttft_s(result: RequestResult) -> float | None:
    """None too where the first token that was sent comes after reasoning that was kept back."""
    if result.first_token_ns is None or result.sent_ns is None:
        return None
    if "hidden_reasoning" in result.notes:
        return None
    return (result.first_token_ns - result.sent_ns) / 1e9
