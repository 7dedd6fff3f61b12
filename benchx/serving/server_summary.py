"""What a server's series say of one load: hits, preemptions, speculation, queue and prefill."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchx.core import metric
from benchx.serving.engines.base import Capabilities, EngineSettings
from benchx.serving.scrape import Reading, Series

AcceptanceMode = Literal["none", "real", "synthetic", "unknown"]
CacheState = Literal["cold", "warm", "mixed"]

COLD_SHARE, WARM_SHARE = 0.01, 0.99
"""Up to 1 % of prompt tokens from a cache is cold; from 99 % on, warm."""

_SYNTHETIC = re.compile(r"synthetic_acceptance|SIMULATE_ACC_LEN|FORCE_NUM_ACCEPTED")
_DRAFTING = re.compile(r"speculative|draft")
_POSITION = re.compile(r"accepted_at\{(\d+)\}")


@dataclass(frozen=True, kw_only=True)
class ServerSummary:
    """None: the server does not tell.

    Attributes:
        kv_usage_share_max: Largest share of the cache in use.
        preemptions: Requests thrown out to make room.
        prefix_hit_share: Prompt tokens found in the server's own cache.
        external_hit_share: Prompt tokens found in a cache outside (host memory, other machines).
        computed_share: Prompt tokens that were computed.
        offload_out_bytes, offload_in_bytes: Cache moved to and from host memory.
        acceptance_length: Tokens per step of speculative decoding: 1 + accepted / drafts, else the
            mean of the server's own gauge while requests ran.
        acceptance_at: Share accepted at each position of a draft.
        queue_mean_s, prefill_mean_s, ttft_mean_s: Means over the requests of the window.
        problem: Why something is missing.
    """

    kv_usage_share_max: float | None = None
    preemptions: float | None = None
    prefix_hit_share: float | None = None
    external_hit_share: float | None = None
    computed_share: float | None = None
    offload_out_bytes: float | None = None
    offload_in_bytes: float | None = None
    acceptance_length: float | None = None
    acceptance_at: tuple[float, ...] = ()
    queue_mean_s: float | None = None
    prefill_mean_s: float | None = None
    ttft_mean_s: float | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data without what is not known."""
        plain = asdict(self) | {"acceptance_at": list(self.acceptance_at)}
        return {name: value for name, value in plain.items() if value not in (None, [])}

    def values(self) -> dict[str, float]:
        """What it says in figures of its own, by metric."""
        means = (
            (metric.SERVER_QUEUE, self.queue_mean_s),
            (metric.SERVER_PREFILL, self.prefill_mean_s),
        )
        plain = (
            (metric.KV_USAGE, self.kv_usage_share_max),
            (metric.PREEMPTIONS, self.preemptions),
            (metric.PREFIX_HITS, self.prefix_hit_share),
            (metric.EXTERNAL_HITS, self.external_hit_share),
            (metric.ACCEPTANCE, self.acceptance_length),
        )
        found = {f"{one.id}_mean": 1000 * value for one, value in means if value is not None}
        return found | {one.id: value for one, value in plain if value is not None}


def summarise(series: Series) -> ServerSummary:
    """What was told from the first reading, made right before the load, to the last."""
    inside, outside = _hit_shares(series)
    return ServerSummary(
        kv_usage_share_max=series.highest("kv_usage_share"),
        preemptions=series.increase("preemptions"),
        prefix_hit_share=inside,
        external_hit_share=outside,
        computed_share=computed_share(series),
        offload_out_bytes=series.increase("offload_out_bytes"),
        offload_in_bytes=series.increase("offload_in_bytes"),
        acceptance_length=_acceptance_length(series),
        acceptance_at=_acceptance_at(series),
        queue_mean_s=series.mean_of_histogram("queue_s"),
        prefill_mean_s=series.mean_of_histogram("prefill_s"),
        ttft_mean_s=series.mean_of_histogram("ttft_s"),
        problem=series.problem,
    )


def computed_share(series: Series) -> float | None:
    """Share of prompt tokens that were computed and found in no cache; None if not told."""
    by_source = _ratio(series.increase("input_computed"), _input_by_source(series))
    inside, outside = _hit_shares(series)
    if by_source is not None or inside is None:
        return by_source
    return 1 - inside - (outside or 0.0)


def _hit_shares(series: Series) -> tuple[float | None, float | None]:
    """Shares of prompt tokens found inside and outside, by the best denominator there is."""
    tokens = _input_by_source(series)
    if tokens:
        inside, outside = series.increase("input_from_cache"), series.increase("input_from_outside")
        return _ratio(inside or 0.0, tokens), _ratio(outside or 0.0, tokens)
    # Queries outside are only those missed inside: all prompt tokens are the denominator.
    queries = series.increase("prefix_queries")
    inside = _ratio(series.increase("prefix_hits"), queries)
    if inside is None:
        hits = series.increase("prefix_hit_blocks")
        inside = _ratio(hits, _sum(hits, series.increase("prefix_missed_blocks")))
    return inside, _ratio(series.increase("external_hits"), queries)


def _input_by_source(series: Series) -> float | None:
    names = ("input_computed", "input_from_cache", "input_from_outside")
    return _sum(*(series.increase(name) for name in names))


def acceptance_mode(settings: EngineSettings, able: Capabilities) -> AcceptanceMode:
    """Whether drafts are accepted by the model or by decree, which is no property of a model.

    `unknown` where the settings don't show it: of a server that runs already, or one whose options
    are in a file.
    """
    if _SYNTHETIC.search(f"{dict(settings.args)} {dict(settings.env)}"):
        return "synthetic"
    if any(_DRAFTING.search(flag) for flag in settings.args):
        return "real"
    return "none" if able.flags_show_drafts and "config" not in settings.args else "unknown"


def acceptance_seen(mode: AcceptanceMode, series: Series) -> AcceptanceMode:
    """The mode, corrected by what the server told of a load: drafts that grew were made."""
    if mode not in ("none", "unknown"):
        return mode
    return mode if (_acceptance_length(series) or 1.0) <= 1.0 else "real"


def cache_state(cached_share: float | None) -> CacheState | None:
    """A label for the share of prompt tokens that came from a cache; None when it is unknown."""
    if cached_share is None:
        return None
    if cached_share <= COLD_SHARE:
        return "cold"
    return "warm" if cached_share >= WARM_SHARE else "mixed"


def _acceptance_length(series: Series) -> float | None:
    drafts, accepted = series.increase("drafts"), series.increase("accepted_tokens")
    if drafts and accepted is not None:
        return 1 + accepted / drafts
    return series.mean("acceptance_length", where=_is_drafting)


def _is_drafting(reading: Reading) -> bool:
    """Whether a gauge of acceptance speaks of steps: without any it is 0, or of an earlier load."""
    running = reading.values.get("requests_running")
    return reading.values["acceptance_length"] > 0 and (running is None or running > 0)


def _acceptance_at(series: Series) -> tuple[float, ...]:
    drafts = series.increase("drafts")
    names = {name for reading in series.readings for name in reading.values}
    found = {int(one[1]): one[0] for name in names if (one := _POSITION.fullmatch(name))}
    if not drafts:
        return ()
    grown = [series.increase(found[position]) for position in sorted(found)]
    return tuple(value / drafts for value in grown if value is not None)


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
