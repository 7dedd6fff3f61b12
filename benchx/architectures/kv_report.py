"""What `benchx kv` says: of one architecture on one machine, context by context, tier by tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchx.architectures.cache import (
    CacheFormat,
    Ranks,
    cache_bytes_per_token,
    check_ranks,
    rank_cache_bytes_per_token,
    rank_state_bytes,
    state_bytes_per_sequence,
)
from benchx.architectures.descriptor import Architecture
from benchx.architectures.flops import prefill_flops
from benchx.architectures.parameters import parameters
from benchx.architectures.tiers import (
    Footprint,
    PrefillModel,
    Tier,
    checkpoint_interval,
    kv_throughput_gb_s,
    loading_wins_from,
    sequences_that_fit,
)

ASSUMED = "assumed effective bandwidth, not measured"
ASSUMED_TIERS = (
    Tier(name="c2c", bandwidth_gb_s=400.0, source=ASSUMED),
    Tier(name="pcie5-x16", bandwidth_gb_s=55.0, source=ASSUMED),
    Tier(name="rdma-400g", bandwidth_gb_s=45.0, source=ASSUMED),
    Tier(name="nvme", bandwidth_gb_s=12.0, source=ASSUMED),
    Tier(name="ethernet-100g", bandwidth_gb_s=11.0, source=ASSUMED),
)
"""Where nothing was measured; a run of `kv-tiers` replaces them."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the model runs on.

    Attributes:
        name: As printed.
        memory_bytes: Of one GPU.
        gpus: How many share the model.
    """

    name: str
    memory_bytes: float
    gpus: int


@dataclass(frozen=True, kw_only=True)
class ContextRow:
    """One context length. None: unknown, never 0.

    Attributes:
        cache_bytes, state_bytes: What a prefill of it leaves behind, all ranks together once.
        prefill_s: Time of the prefill.
        kv_throughput_gb_s: Bytes left behind / prefill time: the bandwidth from which loading
            a prefix of this length beats computing it.
        load_s: Tier -> seconds to load all of it once over the tier's bandwidth. Tensor ranks that
            each hold the whole latent load it as often: at once where each has a link of its own
            (PCIe), one after the other where they share one.
        sequences: How many sequences of this length fit beside the weights.
        states_in_tokens: Tokens whose cache is as large as one state.
    """

    context: int
    cache_bytes: int
    state_bytes: int
    prefill_s: float | None
    kv_throughput_gb_s: float | None
    load_s: dict[str, float]
    sequences: int | None

    @property
    def total_bytes(self) -> int:
        """Cache and state."""
        return self.cache_bytes + self.state_bytes


@dataclass(frozen=True, kw_only=True)
class TierRow:
    """One tier.

    Attributes:
        tier: Bandwidth and source.
        loading_wins_from: Length from which on every prefix loads faster than it is computed;
            None: there is none, or the prefill time is unknown.
        checkpoint_interval: Tokens that a state checkpoint must save to be worth loading; None
            without states, or where the prefill time is unknown.
    """

    tier: Tier
    loading_wins_from: int | None
    checkpoint_interval: int | None


@dataclass(frozen=True, kw_only=True)
class KvReport:
    """Everything that is printed, drawn and dumped."""

    arch: Architecture
    form: CacheFormat
    ranks: Ranks
    machine: Machine | None
    prefill: PrefillModel | None
    per_token_bytes: int
    state_bytes: int
    weight_bytes: int
    rank_weight_bytes: int
    contexts: tuple[ContextRow, ...]
    tiers: tuple[TierRow, ...]

    @property
    def state_in_tokens(self) -> int | None:
        """Tokens whose cache is as large as one state; None without a state or a cache."""
        if not self.state_bytes or not self.per_token_bytes:
            return None
        return round(self.state_bytes / self.per_token_bytes)


def bounded_prefill(
    arch: Architecture, *, tflop_s: float, gpus: int, share: float, source: str
) -> PrefillModel:
    """Prefill time at a share of the matrix rate of all GPUs, from the FLOPs alone.

    FLOPs are a quadratic of the tokens, so three lengths determine it.

    Args:
        arch: The model.
        tflop_s: Of one GPU.
        gpus: How many work on one prompt.
        share: Of that rate; 1 is the bound that no machine beats.
        source: Of the rate, for people.
    """
    rate = tflop_s * 1e12 * gpus * share
    one, two, four = (prefill_flops(arch, tokens) / rate for tokens in (1024, 2048, 4096))
    step = 1024.0
    square = ((four - two) / (2 * step) - (two - one) / step) / (3 * step)
    linear = (two - one) / step - 3 * step * square
    fixed = one - linear * step - square * step**2
    return PrefillModel(
        fixed_s=max(0.0, fixed), linear_s=linear, quadratic_s=max(0.0, square), source=source
    )


def kv_report(
    arch: Architecture,
    *,
    contexts: Sequence[int],
    form: CacheFormat,
    ranks: Ranks,
    machine: Machine | None,
    prefill: PrefillModel | None,
    tiers: Sequence[Tier],
    measured_s: Mapping[int, float] | None = None,
) -> KvReport:
    """Put it together; what is not known stays None.

    `measured_s` (tokens -> seconds of a prefill) stands in its own rows in the place of `prefill`,
    the curve through it, which serves the lengths between and the break-even points.

    Raises:
        UsageError: Heads or experts can't be spread over so many ranks.
    """
    check_ranks(arch, ranks)
    counted, published = parameters(arch), arch.checkpoint
    routed, others = published.routed_experts, published.others
    rank_weights = counted.rank_weight_bytes(
        routed=routed, others=others, tensor=ranks.tensor, expert=ranks.expert
    )
    per_token, state = cache_bytes_per_token(arch, form), state_bytes_per_sequence(arch, form)
    left = Footprint(per_token_bytes=per_token, state_bytes=state)
    report = KvReport(
        arch=arch,
        form=form,
        ranks=ranks,
        machine=machine,
        prefill=prefill,
        per_token_bytes=per_token,
        state_bytes=state,
        weight_bytes=counted.weight_bytes(routed=routed, others=others),
        rank_weight_bytes=rank_weights,
        contexts=(),
        tiers=tuple(_tier_row(tier, left, prefill) for tier in tiers),
    )
    known = measured_s or {}
    rows = tuple(_context_row(context, left, report, known.get(context)) for context in contexts)
    return KvReport(**{**vars(report), "contexts": rows})


def _context_row(
    context: int, left: Footprint, report: KvReport, seconds: float | None
) -> ContextRow:
    size = left.total_bytes(context)
    if seconds is None and report.prefill is not None:
        seconds = report.prefill.seconds(context)
    sequences = None
    if report.machine is not None:
        held = context * rank_cache_bytes_per_token(report.arch, report.form, report.ranks)
        held += rank_state_bytes(report.arch, report.form, report.ranks)
        memory = report.machine.memory_bytes
        sequences = sequences_that_fit(memory, report.rank_weight_bytes, held)
    return ContextRow(
        context=context,
        cache_bytes=context * report.per_token_bytes,
        state_bytes=report.state_bytes,
        prefill_s=seconds,
        kv_throughput_gb_s=kv_throughput_gb_s(size, seconds) if seconds else None,
        load_s={row.tier.name: row.tier.load_seconds(size) for row in report.tiers},
        sequences=sequences,
    )


def _tier_row(tier: Tier, left: Footprint, prefill: PrefillModel | None) -> TierRow:
    if prefill is None:
        return TierRow(tier=tier, loading_wins_from=None, checkpoint_interval=None)
    return TierRow(
        tier=tier,
        loading_wins_from=loading_wins_from(tier, left, prefill),
        checkpoint_interval=checkpoint_interval(tier, left, prefill),
    )
