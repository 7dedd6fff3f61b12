"""`benchx kv ARCH --versus RUN`: layers as published against one kind of attention in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.cli.terminal import print_json, print_rows, stdout
from benchx.core.axes import parse_lengths
from benchx.core.errors import UsageError
from benchx.core.units import format_count

if TYPE_CHECKING:
    from benchx.architectures.crossover import Crossover

OWN = "own"
LEGEND = (
    "ratio: time of the pattern / time of the model's own, at the first and the last length; "
    "above 1, own is faster",
    "time ~ tokens^p: least squares on logarithms, with the 95 % interval of p",
    "constant, linear, quadratic: shares of the fitted time at the last length",
)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Times of one pattern.

    Attributes:
        phase: prefill or decode.
        batch: Sequences.
        pattern: Attention of the layers.
        times_ms: Length (of the prompt, or of the context) -> median device time.
        left_bytes: Length -> bytes of cache and state (prefill only).
    """

    phase: str
    batch: int
    pattern: str
    times_ms: Mapping[int, float]
    left_bytes: Mapping[int, float]


def print_versus(path: Path, name: str, chart: Path | None, *, as_json: bool) -> None:
    """Draw the patterns, and print where each overtakes the model's own.

    Raises:
        UsageError: The run does not hold the model's own pattern and another one.
    """
    series = read_series(path, name)
    rows = [_row(one, series) for one in series if one.pattern != OWN]
    drawn = None if chart is None else _draw(series, path, name, chart)
    if as_json:
        growth = [_growth(one) for one in series]
        print_json({"against_own": rows, "growth": growth, "chart": drawn})
    else:
        print_rows(stdout(), [_text(row) for row in rows])
        stdout().print()
        print_rows(stdout(), [_growth_text(one) for one in series])
        for line in LEGEND:
            stdout().print(line)
        if drawn is not None:
            stdout().print(str(drawn), soft_wrap=True)


def _draw(series: Sequence[Series], run: Path, name: str, chart: Path) -> Path:
    """Before anything is printed, so that no reader who leaves early (`| head`) prevents it."""
    from benchx.reporting import source_lines
    from benchx.reporting.chart_kv_versus import draw_versus

    curves, about = [asdict(one) for one in series], f"{name}, {run.name}"
    return draw_versus(curves, _rows(run, name), chart, about=about, source=source_lines([run])[0])


def read_series(path: Path, name: str) -> list[Series]:
    """Every (phase, batch, pattern) of a run, the fastest backend of each length."""
    found: dict[tuple[str, int, str], tuple[dict[int, float], dict[int, float]]] = {}
    for row in _rows(path, name):
        key, length = _place(row)
        times, sizes = found.setdefault(key, ({}, {}))
        took = row["device_time_ms_p50"]
        times[length] = min(took, times.get(length, took))
        sizes[length] = (row["kv_cache_bytes"] or 0) + (row["kv_state_bytes"] or 0)
    patterns = {pattern for _, _, pattern in found}
    if OWN not in patterns or len(patterns) < 2:
        raise UsageError(
            f"{path}: holds patterns {', '.join(sorted(patterns)) or '(none)'} of {name}",
            hint="benchx run hybrid-vs-full",
        )
    return [
        Series(
            phase=phase,
            batch=batch,
            pattern=pattern,
            times_ms=dict(sorted(times.items())),
            left_bytes=dict(sorted(sizes.items())) if phase == "prefill" else {},
        )
        for (phase, batch, pattern), (times, sizes) in found.items()
    ]


def _rows(path: Path, name: str) -> list[Mapping[str, Any]]:
    """The ok points of the model that start from nothing."""
    from benchx.runner.aggregate import load_run

    return [
        row
        for row in load_run(path).rows
        if row.get("op") == name and row.get("outcome") == "ok" and not row.get("prefix")
    ]


def _place(row: Mapping[str, Any]) -> tuple[tuple[str, int, str], int]:
    if row["phase"] == "decode":
        return ("decode", int(row["batch"]), str(row["pattern"])), int(row["context"])
    lengths = parse_lengths(row["seqlens"])
    return ("prefill", len(lengths), str(row["pattern"])), lengths[0]


def _row(one: Series, series: Sequence[Series]) -> dict[str, Any]:
    from benchx.architectures.crossover import crossover

    own = next(
        (s for s in series if (s.phase, s.batch, s.pattern) == (one.phase, one.batch, OWN)), None
    )
    found: Crossover | None = crossover(own.times_ms, one.times_ms) if own else None
    longest = found.longest if found else None
    left, bytes_cross = None, crossover(own.left_bytes, one.left_bytes) if own else None
    if own is not None and longest is not None and own.left_bytes:
        left = one.left_bytes[longest] / own.left_bytes[longest]
    return {
        "phase": one.phase,
        "batch": one.batch,
        "pattern": one.pattern,
        "crossovers": list(found.at) if found else None,
        "shortest": found.shortest if found else None,
        "ratio_at_shortest": found.first_ratio if found else None,
        "longest": longest,
        "ratio_at_longest": found.last_ratio if found else None,
        "bytes_ratio_at_longest": left,
        "bytes_crossovers": list(bytes_cross.at) if bytes_cross else None,
    }


def _growth(one: Series) -> dict[str, Any]:
    """How a pattern's time grows with the length: exponent, and the curve through its times."""
    from benchx.architectures.fit import fitted_exponent, fitted_prefill

    seconds = {length: time / 1e3 for length, time in one.times_ms.items()}
    found, curve = fitted_exponent(seconds), fitted_prefill(seconds, source="")
    return {
        "phase": one.phase,
        "batch": one.batch,
        "pattern": one.pattern,
        "lengths": list(seconds),
        "exponent": asdict(found) if found else None,
        "fixed_s": curve.fixed_s,
        "linear_s": curve.linear_s,
        "quadratic_s": curve.quadratic_s,
    }


def _growth_text(one: Series) -> dict[str, Any]:
    row = _growth(one)
    found, interval = row["exponent"], "-"
    if found is not None and found["low"] is not None:
        interval = f"{found['low']:.2f} to {found['high']:.2f}"
    shortest, longest = row["lengths"][0], row["lengths"][-1]
    shares = (row["fixed_s"], row["linear_s"] * longest, row["quadratic_s"] * longest**2)
    whole = sum(shares)
    return {
        "phase": row["phase"],
        "batch": row["batch"],
        "pattern": row["pattern"],
        "lengths": f"{format_count(shortest)} to {format_count(longest)}",
        "time ~ tokens^": "-" if found is None else f"{found['value']:.2f}",
        "interval": interval,
        "constant": f"{shares[0] / whole:.0%}",
        "linear": f"{shares[1] / whole:.0%}",
        "quadratic": f"{shares[2] / whole:.0%}",
    }


def _text(row: Mapping[str, Any]) -> dict[str, Any]:
    def length(value: int | None) -> str:
        return "-" if value is None else format_count(value)

    def three(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    def crossings(found: Sequence[float] | None) -> str:
        return " and ".join(f"{at:,.0f}" for at in found or ())

    at = crossings(row["crossovers"])
    return {
        "phase": row["phase"],
        "batch": row["batch"],
        "pattern": row["pattern"],
        "crosses own at": f"{at} tokens" if at else "nowhere",
        "lengths": f"{length(row['shortest'])} to {length(row['longest'])}",
        "ratio, first": three(row["ratio_at_shortest"]),
        "ratio, last": three(row["ratio_at_longest"]),
        "bytes ratio, last": three(row["bytes_ratio_at_longest"]),
        "bytes cross at": crossings(row["bytes_crossovers"]) or "-",
    }
