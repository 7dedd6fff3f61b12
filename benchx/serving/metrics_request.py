"""Figures of one request; None where a figure is not defined for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from benchx.core import metric
from benchx.serving.request import RequestOutcome, RequestResult

_MS = 1e6

RequestFigures = Mapping[str, float | None]
"""Metric id -> value."""

Gaps = npt.NDArray[np.float64]
"""Times in ms, one after the other. Arrays, since a long load has tens of millions of them."""


def request_figures(result: RequestResult) -> RequestFigures:
    """Every per-request metric of an ok request; see `core.metric` for the formulas."""
    sent_ns = result.sent_ns
    if result.outcome is not RequestOutcome.OK or sent_ns is None:
        return {}
    end_ns = result.end_ns if result.last_token_ns is None else result.last_token_ns
    tpot = tpot_ms(result)
    ttft = _since(sent_ns, result.first_token_ns)
    e2e = (end_ns - sent_ns) / _MS
    return {
        metric.TTFT.id: ttft,
        metric.TTFT_INTENDED.id: _since(result.intended_ns, result.first_token_ns),
        metric.TTFR.id: _since(sent_ns, result.first_reasoning_ns),
        metric.TTFO.id: _since(sent_ns, result.first_visible_ns),
        metric.FIRST_BYTE.id: _since(sent_ns, result.first_byte_ns),
        metric.TPOT.id: tpot,
        metric.E2E.id: e2e,
        metric.E2E_INTENDED.id: (end_ns - result.intended_ns) / _MS,
        metric.CLIENT_LAG.id: (sent_ns - result.intended_ns) / _MS,
        metric.INTERACTIVITY.id: 1000 / tpot if tpot else None,
        metric.E2E_INTERACTIVITY.id: 1000 * result.output_tokens / e2e if e2e > 0 else None,
        metric.PREFILL_SPEED.id: _prefill_speed(result, ttft),
    }


def _since(start_ns: int, stamp_ns: int | None) -> float | None:
    return None if stamp_ns is None else (stamp_ns - start_ns) / _MS


def tpot_ms(result: RequestResult) -> float | None:
    """Time per output token after the first chunk; None for one token, or one chunk.

    The tokens of the first chunk are taken out where the server tells them, else one is; then
    reasoning that was counted and never sent, as far as it isn't among those of the first chunk.
    """
    if len(result.arrivals_ns) < 2:
        return None
    first = result.chunk_tokens[0] if result.chunk_tokens_known else 1
    hidden = result.output_tokens - result.streamed_tokens
    later = result.output_tokens - first - max(hidden - max(first - 1, 0), 0)
    if later < 1:
        return None
    return (result.arrivals_ns[-1] - result.arrivals_ns[0]) / _MS / later


def _prefill_speed(result: RequestResult, ttft_ms: float | None) -> float | None:
    if result.input_tokens is None or not ttft_ms or "hidden_reasoning" in result.notes:
        return None  # a first token after reasoning that was kept back is no end of a prefill
    cached = (result.usage.cached_tokens if result.usage else None) or 0
    return 1000 * max(result.input_tokens - cached, 0) / ttft_ms


def chunk_gaps_ms(result: RequestResult) -> Gaps:
    """Times between chunks with payload."""
    stamps_ns = np.asarray(result.arrivals_ns, dtype=np.int64)
    return (stamps_ns[1:] - stamps_ns[:-1]) / _MS


def token_gaps_ms(result: RequestResult) -> Gaps | None:
    """Times between tokens: the gap before a chunk over its tokens, once for each of them.

    A chunk without a token of its own (the rest of a text that was held back) is part of the gap
    before the next one. None where chunks hold an unknown number of tokens: gaps of chunks are no
    gaps of tokens.
    """
    if "chunk_is_not_token" in result.notes:
        return None
    stamps_ns = np.asarray(result.arrivals_ns, dtype=np.int64)
    counts = np.asarray(result.chunk_tokens[1:], dtype=np.int64)
    own = counts > 0
    ends_ns = stamps_ns[1:][own]
    begins_ns = np.concatenate((stamps_ns[:1], ends_ns[:-1]))[: len(ends_ns)]
    return np.repeat((ends_ns - begins_ns) / _MS / counts[own], counts[own])
