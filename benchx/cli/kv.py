"""`benchx kv`: cache sizes, KV throughput and when loading a cached prefix pays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchx.cli.arguments import AsJson
from benchx.cli.terminal import print_json, stdout
from benchx.core.errors import UsageError
from benchx.core.units import UnitError, parse_count, parse_share

if TYPE_CHECKING:
    from benchx.architectures import Architecture
    from benchx.architectures.cache import Ranks
    from benchx.architectures.kv_report import KvReport, Machine
    from benchx.architectures.tiers import PrefillModel, Tier
    from benchx.cli.kv_measured import MeasuredPrefill

CONTEXTS = "1k,8k,32k,128k,1M"


Arch = Annotated[
    str, typer.Argument(metavar="ARCH", help="A shipped name, a .yaml or a config.json.")
]
Context = Annotated[
    str | None, typer.Option(metavar="LIST", help=f"Context lengths, such as {CONTEXTS}.")
]
HardwareName = Annotated[
    str | None, typer.Option(metavar="NAME", help="A name from `benchx list hardware`.")
]
Gpus = Annotated[
    int | None, typer.Option(min=1, help="Number of GPUs (default: the number of ranks).")
]
TensorRanks = Annotated[
    int | None, typer.Option(min=1, help="Size of a tensor-parallel group (default: all GPUs).")
]
ContextRanks = Annotated[int, typer.Option(min=1, help="Ranks that split cached tokens.")]
ExpertRanks = Annotated[int, typer.Option(min=1, help="Ranks that split the routed experts.")]
CacheDtype = Annotated[
    str | None, typer.Option(help="bfloat16 or fp8 (default: that of --run, or bfloat16).")
]
StateDtype = Annotated[
    str | None, typer.Option(help="float32 or bfloat16 (default: that of --run, or float32).")
]
DraftTokens = Annotated[int, typer.Option(min=0, help="Speculative tokens.")]
Mfu = Annotated[
    str, typer.Option(metavar="SHARE", help="Share of the matrix rate that prefill reaches.")
]
PrefillRun = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN", help="Take prefill times from this run, or from several."),
]
TierRun = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Take bandwidths from a run of kv-tiers.")
]
OwnTiers = Annotated[
    list[str] | None, typer.Option(metavar="NAME=GB/s", help="Add a tier of your own.")
]
VersusRun = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Compare the patterns of a hybrid-vs-full run.")
]
Chart = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a chart to this file (.png or .svg).")
]


def kv(
    command_line: typer.Context,
    architecture: Arch,
    *,
    context: Context = None,
    hardware: HardwareName = None,
    gpus: Gpus = None,
    tp: TensorRanks = None,
    dcp: ContextRanks = 1,
    ep: ExpertRanks = 1,
    cache_dtype: CacheDtype = None,
    state_dtype: StateDtype = None,
    draft_tokens: DraftTokens = 0,
    mfu: Mfu = "100%",
    run: PrefillRun = None,
    tiers: TierRun = None,
    tier: OwnTiers = None,
    versus: VersusRun = None,
    chart: Chart = None,
    as_json: AsJson = False,
) -> None:
    """Estimate KV-cache sizes and when loading beats recomputing.

    How much cache and state a prefill leaves behind per context, and what loading it is worth.
    Prefill times come from --run, or are bounded by the matrix rate of --hardware times --mfu.
    """
    from benchx.architectures import load_architecture
    from benchx.architectures.cache import CacheFormat
    from benchx.architectures.kv_report import kv_report
    from benchx.cli.kv_measured import measured_prefill
    from benchx.cli.kv_versus import print_versus

    _check_chart(chart)
    arch = load_architecture(architecture)
    if versus is not None:
        _refuse_others(command_line, "--versus", beside=_OF_VERSUS)
        print_versus(versus, architecture, chart, as_json=as_json)
        return
    measured = measured_prefill(run, architecture) if run else None
    arch = measured.arch if measured else arch
    kept = measured.form if measured else CacheFormat()
    count, ranks = _ranks(gpus, tp, dcp, ep)
    machine, rate = _machine(hardware, count)
    report = kv_report(
        arch,
        contexts=_contexts(context, arch, measured),
        form=replace(
            kept,
            cache_dtype=cache_dtype or kept.cache_dtype,
            state_dtype=state_dtype or kept.state_dtype,
            draft_tokens=draft_tokens,
        ),
        ranks=ranks,
        machine=machine,
        prefill=measured.model if measured else _bound(arch, machine, rate, mfu),
        tiers=_tiers(tiers, tier or ()),
        measured_s=measured.seconds if measured else None,
    )
    runs = [*(run or ()), *([tiers] if tiers else ())]
    _show(report, measured, chart and _draw(report, measured, runs, chart), as_json=as_json)


_OF_VERSUS = ("architecture", "versus", "chart", "as_json")


def _refuse_others(command_line: typer.Context, option: str, *, beside: Collection[str]) -> None:
    """Options that have no meaning beside this one must not seem to have had an effect."""
    sources = {
        max(parameter.opts, key=len): command_line.get_parameter_source(parameter.name or "")
        for parameter in command_line.command.params
        if parameter.name not in beside
    }
    given = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    if given:
        raise UsageError(
            f"{', '.join(given)} can't be combined with {option}",
            hint=f"leave out {'it' if len(given) == 1 else 'them'}, or {option}",
        )


def _check_chart(path: Path | None) -> None:
    if path is not None:
        from benchx.reporting.chart_canvas import check_chart_file

        check_chart_file(path)


def _draw(
    report: KvReport, measured: MeasuredPrefill | None, runs: Sequence[Path], chart: Path
) -> Path:
    """Before anything is printed, so that no reader who leaves early (`| head`) prevents it."""
    from benchx.reporting import source_lines
    from benchx.reporting.chart_kv import draw_kv

    seconds = measured.seconds if measured else {}
    part = (measured.cut if measured else None) or ""
    return draw_kv(report, seconds, chart, sources=source_lines(runs), part=part)


def _show(
    report: KvReport, measured: MeasuredPrefill | None, drawn: Path | None, *, as_json: bool
) -> None:
    if as_json:
        print_json(_plain(report, measured) | {"chart": drawn})
        return
    from benchx.cli.kv_text import print_report

    print_report(report, measured)
    if drawn is not None:
        stdout().print(str(drawn), soft_wrap=True)


def _ranks(gpus: int | None, tp: int | None, dcp: int, ep: int) -> tuple[int, Ranks]:
    """GPUs in all, and how they share the model.

    Raises:
        UsageError: The GPUs can't be divided into such groups.
    """
    from benchx.architectures.cache import Ranks

    tensor = tp or gpus or 1
    count = gpus or max(tensor, ep)
    for option, size in (("--tp", tensor), ("--ep", ep)):
        if count % size:
            raise UsageError(
                f"{option} {size}: {count} GPUs are no whole groups of {size}",
                hint=f"--gpus {-(-count // size) * size}",
            )
    return count, Ranks(tensor=tensor, context=dcp, expert=ep)


def _contexts(
    text: str | None, arch: Architecture, measured: MeasuredPrefill | None
) -> tuple[int, ...]:
    """As asked; else those that were measured, or the usual ones that the model can hold.

    Raises:
        UsageError: A length that is no number, or beyond what the model is made for.
    """
    if text is None:
        known = (
            tuple(sorted(measured.seconds))
            if measured
            else tuple(parse_count(word) for word in CONTEXTS.split(","))
        )
        return tuple(length for length in known if length <= arch.max_context)
    try:
        lengths = tuple(parse_count(word.strip()) for word in text.split(","))
    except UnitError as error:
        raise UsageError(f"--context: {error}") from error
    for length in lengths:
        if not 1 <= length <= arch.max_context:
            raise UsageError(
                f"--context {length}: {arch.name} is made for 1 to {arch.max_context} tokens"
            )
    return lengths


def _machine(name: str | None, gpus: int) -> tuple[Machine | None, float | None]:
    """The machine and the bf16 matrix rate of one of its GPUs; None where none was named."""
    if name is None:
        return None, None
    from benchx.architectures.kv_report import Machine
    from benchx.economics.catalogue import hardware_named

    found = hardware_named(name)
    machine = Machine(name=found.title, memory_bytes=found.memory_gb * 1e9, gpus=gpus)
    return machine, found.bf16_tflop_s


def _bound(
    arch: Architecture, machine: Machine | None, tflop_s: float | None, mfu: str
) -> PrefillModel | None:
    from benchx.architectures.kv_report import bounded_prefill

    try:
        share = parse_share(mfu)
    except UnitError as error:
        raise UsageError(f"--mfu: {error}") from error
    if share == 0:
        raise UsageError("--mfu: got 0; expected a share above 0, such as 40%")
    if machine is None or tflop_s is None:
        return None
    all_on_it = ", all on one prompt" if machine.gpus > 1 else ""
    told = f"{share:.0%} of the bf16 rate of {machine.gpus} x {machine.name}{all_on_it}"
    return bounded_prefill(arch, tflop_s=tflop_s, gpus=machine.gpus, share=share, source=told)


def _tiers(run: Path | None, own: Sequence[str]) -> tuple[Tier, ...]:
    """Measured ones, else assumed ones; the user's own come on top."""
    from benchx.architectures.kv_report import ASSUMED_TIERS
    from benchx.architectures.tiers import Tier
    from benchx.cli.kv_measured import measured_tiers

    found = list(measured_tiers(run) if run else ASSUMED_TIERS)
    for text in own:
        name, _, rate = text.partition("=")
        try:
            bandwidth = float(rate)
        except ValueError:
            bandwidth = 0.0
        if not name or not 0 < bandwidth < 1e9:
            raise UsageError(f"--tier {text}: expected NAME=GB/s, such as nvme=12")
        found.append(Tier(name=name, bandwidth_gb_s=bandwidth, source="given by the user"))
    return tuple(found)


def _peaks(measured: MeasuredPrefill | None) -> dict[int, int | None] | None:
    """Tokens -> peak of device memory in their prefill; None where nothing was measured."""
    from benchx.cli.kv_measured import peak_bytes

    if measured is None:
        return None
    return {tokens: peak_bytes(measured, tokens) for tokens in measured.working_bytes}


def _plain(report: KvReport, measured: MeasuredPrefill | None) -> dict[str, Any]:
    """JSON: figures in the units that the keys name."""
    exponent = measured.exponent if measured else None
    return {
        "architecture": report.arch.model_dump(mode="json", by_alias=True, exclude_none=True),
        "format": asdict(report.form),
        "ranks": asdict(report.ranks),
        "machine": asdict(report.machine) if report.machine else None,
        "prefill": asdict(report.prefill) if report.prefill else None,
        "peak_memory_bytes": _peaks(measured),
        "prefill_exponent": asdict(exponent) if exponent else None,
        "cache_bytes_per_token": report.per_token_bytes,
        "state_bytes": report.state_bytes,
        "state_in_tokens": report.state_in_tokens,
        "weight_bytes": report.weight_bytes,
        "rank_weight_bytes": report.rank_weight_bytes,
        "contexts": [asdict(row) | {"total_bytes": row.total_bytes} for row in report.contexts],
        "tiers": [asdict(row) for row in report.tiers],
    }
