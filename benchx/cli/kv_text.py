"""The tables of `benchx kv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchx.cli.kv_measured import peak_bytes
from benchx.cli.terminal import print_rows, stdout
from benchx.core.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from benchx.architectures.kv_report import ContextRow, KvReport, TierRow
    from benchx.cli.kv_measured import MeasuredPrefill


def print_report(report: KvReport, measured: MeasuredPrefill | None) -> None:
    """Facts, a row per context, a row per tier, times to load, and where the figures come from."""
    console = stdout()
    for line in _facts(report, measured):
        console.print(line)
    console.print()
    print_rows(console, [_context(row, report, measured) for row in report.contexts])
    console.print()
    print_rows(console, [_tier(row, report) for row in report.tiers])
    console.print()
    print_rows(console, [_loads(row, report) for row in report.tiers])
    for line in _notes(report):
        console.print(line)


def _facts(report: KvReport, measured: MeasuredPrefill | None) -> list[str]:
    from benchx.architectures.parameters import parameters

    arch, counted = report.arch, parameters(report.arch)
    counts = {kind: arch.kinds.count(kind) for kind in dict.fromkeys(arch.kinds)}
    kinds = ", ".join(f"{count} {kind.upper()}" for kind, count in counts.items())
    cut = f" (a part of it: {measured.cut})" if measured is not None and measured.cut else ""
    lines = [
        f"{arch.title}: {arch.layers} layers, {kinds}{cut}",
        f"parameters {_billions(counted.total)}, active {_billions(counted.active)}; "
        f"{'' if cut else 'published '}weights {format_bytes(report.weight_bytes)}"
        + _on_each(report),
        f"a token leaves {report.per_token_bytes:,} B ({report.form.cache_dtype}), a sequence "
        f"{format_bytes(report.state_bytes)} of state ({report.form.state_dtype})"
        + (f", as much as {report.state_in_tokens:,} tokens" if report.state_in_tokens else ""),
    ]
    if measured is not None and measured.exponent is not None:
        lines.append(_exponent(measured))
    return lines


def _on_each(report: KvReport) -> str:
    """What one GPU holds of the weights, where several share them."""
    tensor, expert = report.ranks.tensor, report.ranks.expert
    groups = [f"tensor-parallel groups of {tensor}"] if tensor > 1 else []
    groups += [f"routed experts over {expert}"] if expert > tensor else []
    if not groups:
        return ""
    return f", {format_bytes(report.rank_weight_bytes)} on each GPU ({', '.join(groups)})"


def _exponent(measured: MeasuredPrefill) -> str:
    found, lengths = measured.exponent, [format_count(tokens) for tokens in measured.seconds]
    assert found is not None
    text = f"prefill time grows as tokens^{found.value:.2f} from {lengths[0]} to {lengths[-1]}"
    if found.low is None or found.high is None:
        return f"{text} (two lengths: no interval)"
    return f"{text} (95 % interval {found.low:.2f} to {found.high:.2f})"


def _context(row: ContextRow, report: KvReport, measured: MeasuredPrefill | None) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "context": format_count(row.context),
        "cache": format_bytes(row.cache_bytes),
        "with state": format_bytes(row.total_bytes),
        "prefill": format_seconds(row.prefill_s) if row.prefill_s else "-",
        "KV GB/s": _three(row.kv_throughput_gb_s),
        "Gbit/s": _three(8 * row.kv_throughput_gb_s if row.kv_throughput_gb_s else None),
    }
    if measured is not None and measured.working_bytes:
        peak = peak_bytes(measured, row.context)
        cells["peak memory"] = "-" if peak is None else format_bytes(peak)
    if report.machine is not None:
        cells["sequences"] = row.sequences
    return cells


def _tier(row: TierRow, report: KvReport) -> dict[str, Any]:
    first, interval = row.loading_wins_from, row.checkpoint_interval
    known = report.prefill is not None
    within = first is not None and first <= report.arch.max_context
    cells: dict[str, Any] = {
        "tier": row.tier.name,
        "GB/s": _three(row.tier.bandwidth_gb_s),
        "loading wins from": (_tokens(first) if within else "never") if known else "-",
    }
    if report.state_bytes:
        cells["checkpoint every"] = _tokens(interval)
        most = report.arch.max_context // interval if interval else None
        cells["in a full context"] = f"{most:,}" if most is not None else "-"
    return cells


def _loads(row: TierRow, report: KvReport) -> dict[str, Any]:
    name, contexts = row.tier.name, report.contexts
    times = {format_count(one.context): format_seconds(one.load_s[name]) for one in contexts}
    return {"time to load": name, **times}


def _tokens(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count:,} token{'' if count == 1 else 's'}"


def _notes(report: KvReport) -> list[str]:
    arch, notes = report.arch, []
    if report.prefill is None:
        notes.append("prefill times: unknown; name a machine (--hardware) or a run (--run)")
    else:
        notes.append(f"prefill times: {report.prefill.source}")
    for source in dict.fromkeys(row.tier.source for row in report.tiers):
        named = ", ".join(row.tier.name for row in report.tiers if row.tier.source == source)
        notes.append(f"{named}: {source}")
    notes.append("KV GB/s: bytes left behind / prefill time; a faster tier beats computing")
    if report.machine is not None:
        notes.append(_sequences(report.machine.gpus, report.ranks.tensor))
    if report.machine is not None and report.contexts and not report.contexts[0].sequences:
        notes.append(
            f"the weights on a GPU ({format_bytes(report.rank_weight_bytes)}) leave no room for "
            f"a sequence in {format_bytes(report.machine.memory_bytes)}; see --gpus, --tp, --ep"
        )
    if report.state_bytes and report.prefill is not None:
        notes += [
            "checkpoint every: tokens that a state must save to be worth loading",
            "in a full context: checkpoints that far apart in "
            f"{format_count(arch.max_context)} tokens",
        ]
    notes.append("time to load: cache and state of one sequence, all of it once, over one link")
    notes.append(f"architecture: {'; '.join(arch.sources)}")
    if arch.unconfirmed:
        notes.append(f"unconfirmed: {', '.join(arch.unconfirmed)}")
    if arch.omitted:
        notes.append(f"left out: {', '.join(arch.omitted)}")
    return notes


def _sequences(gpus: int, tensor: int) -> str:
    """What the column counts: GPUs of a tensor-parallel group hold the same sequences."""
    groups = gpus // tensor
    where = "one GPU" if tensor == 1 else f"one tensor-parallel group of {tensor} GPUs"
    many = f"; each of the {groups} holds as many" if groups > 1 else ""
    return f"sequences: of that context, in the memory of {where} beside the weights{many}"


def _billions(count: int) -> str:
    for factor, letter, digits in ((1e12, "T", 2), (1e9, "B", 1)):
        if count >= factor:
            return f"{count / factor:.{digits}f}{letter}"
    return f"{count / 1e6:.3g}M"


def _three(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
