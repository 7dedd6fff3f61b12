"""What `benchx kv` takes from run folders: prefill times of a model, bandwidths of tiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.cli.run_folders import named_run
from benchx.core.axes import parse_lengths
from benchx.core.errors import UsageError

if TYPE_CHECKING:
    from benchx.architectures import Architecture
    from benchx.architectures.cache import CacheFormat
    from benchx.architectures.fit import Exponent
    from benchx.architectures.tiers import PrefillModel, Tier

_VARIANT = ("layers", "pattern", "shrink", "dtype", "cache_dtype", "state_dtype")


@dataclass(frozen=True, kw_only=True)
class MeasuredPrefill:
    """Prefills of one sequence without a prefix.

    Attributes:
        arch: The variant that was measured: its bytes belong to its times.
        cut: What was left of the model, where that was not all: `4 of 27 layers`.
        form: How cache and state were kept.
        seconds: Tokens -> median time.
        working_bytes: Tokens -> most memory held beside weights, cache and states; absent on a CPU.
        model: A curve through them.
        exponent: Of growth over the measured lengths; None for a single one.
    """

    arch: Architecture
    cut: str | None
    form: CacheFormat
    seconds: dict[int, float]
    working_bytes: dict[int, int]
    model: PrefillModel
    exponent: Exponent | None


def measured_prefill(paths: Sequence[Path], name: str) -> MeasuredPrefill:
    """Prefill times of an architecture in one or more runs, the fastest backend of each length.

    Raises:
        UsageError: One of the runs holds none, or they hold several variants of the model.
    """
    from benchx.architectures import load_architecture
    from benchx.architectures.cache import CacheFormat
    from benchx.architectures.fit import fitted_exponent, fitted_prefill
    from benchx.architectures.variants import variant

    found = [row for path in paths for row in _prefills(path, name)]
    told = ", ".join(str(path) for path in paths)
    variants = {tuple(row[key] for key in _VARIANT) for row in found}
    if len(variants) > 1:
        raise UsageError(
            f"{told}: holds {len(variants)} variants of {name} ({', '.join(_VARIANT)})",
            hint="one run for each: benchx run SCENARIO --set ...",
        )
    layers, pattern, shrink, dtype, cache_dtype, state_dtype = variants.pop()
    whole = load_architecture(name)
    seconds: dict[int, float] = {}
    working: dict[int, int] = {}
    for row in sorted(found, key=lambda row: -float(row["device_time_ms_p50"])):
        tokens = parse_lengths(row["seqlens"])[0]
        seconds[tokens] = row["device_time_ms_p50"] / 1e3
        if row.get("peak_memory_bytes") is not None:
            working[tokens] = int(row["peak_memory_bytes"])
    return MeasuredPrefill(
        arch=variant(whole, layers=int(layers), pattern=str(pattern), shrink=int(shrink)),
        cut=_cut(whole, int(layers), str(pattern), int(shrink)),
        form=CacheFormat(
            cache_dtype=str(dtype if cache_dtype == "auto" else cache_dtype),
            state_dtype=str(state_dtype),
            conv_dtype=str(dtype),
        ),
        seconds=dict(sorted(seconds.items())),
        working_bytes=working,
        model=fitted_prefill(seconds, source=f"measured, {', '.join(path.name for path in paths)}"),
        exponent=fitted_exponent(seconds),
    )


def _cut(whole: Architecture, layers: int, pattern: str, shrink: int) -> str | None:
    words = (
        (layers not in (0, whole.layers), f"{layers} of {whole.layers} layers"),
        (pattern != "own", pattern),
        (shrink > 1, f"widths divided by {shrink}"),
    )
    return ", ".join(word for holds, word in words if holds) or None


def peak_bytes(measured: MeasuredPrefill, tokens: int) -> int | None:
    """Device memory at the peak of a measured prefill: weights, cache, states twice, and the rest.

    The states are held twice since a benchmark restores them before every call.
    """
    from benchx.architectures.cache import (
        ITEM_BYTES,
        cache_bytes_per_token,
        state_bytes_per_sequence,
    )
    from benchx.architectures.parameters import parameters

    if tokens not in measured.working_bytes:
        return None
    arch, form = measured.arch, measured.form
    weights = parameters(arch).total * ITEM_BYTES[form.conv_dtype]
    held = tokens * cache_bytes_per_token(arch, form) + 2 * state_bytes_per_sequence(arch, form)
    return weights + held + measured.working_bytes[tokens]


def measured_tiers(path: Path) -> tuple[Tier, ...]:
    """Towards the device, the best bandwidth that any block size reached, a tier a route.

    Raises:
        UsageError: The run holds none.
    """
    from benchx.architectures.tiers import Tier
    from benchx.ops.kv_copy import LOADS

    best: dict[str, dict[str, Any]] = {}
    for row in _rows(path):
        if row.get("op") != "kv_copy" or row.get("outcome") != "ok" or row["route"] not in LOADS:
            continue
        route = str(row["route"])
        if route not in best or row["bandwidth_gb_s"] > best[route]["bandwidth_gb_s"]:
            best[route] = row
    if not best:
        raise UsageError(f"{path}: no copy towards a device was measured")
    return tuple(
        Tier(name=route, bandwidth_gb_s=row["bandwidth_gb_s"], source=f"measured, {path.name}")
        for route, row in best.items()
    )


def _prefills(path: Path, name: str) -> list[dict[str, Any]]:
    rows = _rows(path)
    found = [row for row in rows if _is_prefill(row, name)]
    if not found:
        is_tiers = any(row.get("op") == "kv_copy" for row in rows)
        raise UsageError(
            f"{path}: no prefill of {name} without a prefix was measured",
            hint=f"bandwidths are taken by --tiers {path}" if is_tiers else None,
        )
    return found


def _is_prefill(row: dict[str, Any], name: str) -> bool:
    return (
        row.get("op") == name
        and row.get("phase") == "prefill"
        and row.get("outcome") == "ok"
        and not row.get("prefix")
        and len(parse_lengths(row["seqlens"])) == 1
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    from benchx.runner.aggregate import load_run

    return [dict(row) for row in load_run(named_run(path)).rows]
