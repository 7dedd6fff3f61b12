"""From the records of all launches to one row per point: what points.parquet holds.

The unit of replication is the launch: a figure is the median over the launches' own medians, its
interval that of order statistics over launches. Only a point that was ok in every launch until now
carries figures; `launches` says how many there are so far. A figure that one of these launches
lacks would be one of fewer launches than the row says, so it is left out and a note tells of it.
Compile time is the largest of the launches, since only the first finds the caches on the disk
empty. `store.points.ROW_RULES` counts these rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchx.core import metric
from benchx.core.errors import StoreError
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.stats.summary import launch_interval, median, percentile_or_none
from benchx.store import LaunchInfo, Run, read_run
from benchx.store.points import Row
from benchx.store.samples import SampleKey, Samples

_SPREAD = (metric.DEVICE_TIME, metric.CALL_TIME, metric.HOST_TIME)
_PLAIN = tuple(
    m.id
    for m in (
        metric.COMPILE_TIME,
        metric.COMPUTE,
        metric.BANDWIDTH,
        metric.ROOFLINE,
        metric.TOKENS,
        metric.KV_CACHE,
        metric.KV_STATE,
        metric.KV_THROUGHPUT,
        metric.KV_THROUGHPUT_BITS,
        metric.PEAK_MEMORY,
    )
)

_SEARCHED = (metric.SLO_CONCURRENCY.id, metric.SLO_RATE.id, metric.SLO_SESSION_RATE.id)
"""What a search is for; its other figures are those at the load that it found."""

_SHOWN = 6
"""Names of metrics in one note."""


def load_run(path: Path) -> Run:
    """Read a run folder; rows that lag behind the records (a hard kill) are derived anew.

    Raises:
        StoreError: See `store.read_run`.
    """
    run = read_run(path)
    return run if run.rows_current else replace(run, rows=derive_rows(run), rows_current=True)


def derive_rows(run: Run) -> tuple[Row, ...]:
    """One row per point of the plan, also of those without a record.

    Raises:
        StoreError: A record holds a value that is no registered metric, or one of its statistics.
    """
    samples = run.samples()
    records: dict[str, list[LaunchRecord]] = {}
    for record in run.records:
        records.setdefault(record.point_id, []).append(record)
    shared = {"run_id": run.meta.run_id, "scenario": run.meta.scenario}
    device = _device_columns(run.launches)
    rows = []
    for entry in run.meta.plan:
        found = sorted(records.get(entry.point.point_id, []), key=lambda record: record.launch)
        columns = _columns(entry.point, entry.launches, found, samples)
        rows.append(shared | columns | device)
    return tuple(rows)


def _columns(
    point: Point,
    launches: int,
    records: Sequence[LaunchRecord],
    samples: Mapping[SampleKey, Samples],
) -> dict[str, Any]:
    outcome, reason = outcome_of(records, launches)
    ok = [record for record in records if record.outcome is Outcome.OK]
    figures = ok if outcome is Outcome.OK else []
    is_serving = point.kind == "serving"
    row: dict[str, Any] = {
        "point_id": point.point_id,
        "group_id": point.group_id,
        "kind": point.kind,
        "op": point.subject,
        "backend": None if is_serving else point.backend,
        "engine": point.backend if is_serving else None,
        "outcome": outcome.value,
        "reason": reason,
        "launches": len(ok),
        "samples": sum(record.timing.samples for record in ok if record.timing),
    }
    row |= point.params
    for one in _SPREAD:
        row |= _spread(one, figures, samples)
    for name in (*_PLAIN, *_others(figures)):
        values = _in_every_launch(name, figures)
        row[name] = _over_launches(name, values)
        row |= _interval(name, values)
    if is_serving:
        sources = (record.provenance.get("kv_prefill_source") for record in figures)
        row["kv_prefill_source"] = _distinct(str(source) for source in sources if source)
    return row | _method_columns(records, ok) | {"notes": _notes(ok, figures)}


def outcome_of(records: Sequence[LaunchRecord], launches: int) -> tuple[Outcome, str | None]:
    """What became of a point over its launches, and why it is not ok."""
    failed = [record for record in records if record.outcome is not Outcome.OK]
    ok = len(records) - len(failed)
    if failed and not ok:
        return failed[0].outcome, failed[0].reason
    if failed:
        first = failed[0]
        what = f"launch {first.launch} was {first.outcome.value}: {first.reason}"
        return Outcome.PARTIAL, f"ok in {ok} of {launches} launches; {what}"
    if not ok:
        each = f" in any of the {launches} launches" if launches > 1 else ""
        return Outcome.PARTIAL, f"not measured yet{each}"
    return Outcome.OK, None


def _spread(
    one: metric.Metric, records: Sequence[LaunchRecord], samples: Mapping[SampleKey, Samples]
) -> dict[str, float | None]:
    name = one.id
    values = _in_every_launch(name, records)
    interval = launch_interval(values) if values else None
    pooled = [
        sample
        for record in (records if values else ())
        for sample in samples.get((record.point_id, record.launch), {}).get(name, ())
    ]
    return {
        one.column("p50"): median(values) if values else None,
        one.column("ci_low"): interval.low if interval else None,
        one.column("ci_high"): interval.high if interval else None,
        one.column("p95"): percentile_or_none(pooled, 95) if pooled else None,
    }


def _in_every_launch(name: str, records: Sequence[LaunchRecord]) -> list[float]:
    """One value per launch; empty when a launch lacks it, or launches are at different loads."""
    if name not in _SEARCHED and len(_loads_found(records)) > 1:
        return []
    values = [record.values[name] for record in records if name in record.values]
    return values if len(values) == len(records) else []


def _loads_found(records: Sequence[LaunchRecord]) -> list[object]:
    """The loads that the launches of a search ended with, each once."""
    searches = (record.provenance.get("searched") for record in records)
    return list(dict.fromkeys(search["found"] for search in searches if search))


def _interval(name: str, values: Sequence[float]) -> dict[str, float]:
    """`X_ci_low` and `X_ci_high` of a median `X_p50` that each launch gives; absent below three."""
    column = _column_of(name)
    interval = launch_interval(values) if column.statistic == "p50" and values else None
    if interval is None:
        return {}
    low, high = (column.metric.column(end) for end in ("ci_low", "ci_high"))
    return {low: interval.low, high: interval.high}


def _column_of(name: str) -> metric.MetricColumn:
    """What a value of a record is; a name that nobody registered would pass for an axis."""
    found = metric.parse_column(name)
    if found is None:
        raise StoreError(
            f"a record holds {name!r}, which is no registered metric",
            hint="register it (entry points `benchx.metrics`), or install the package that does",
        )
    return found


def _others(records: Sequence[LaunchRecord]) -> list[str]:
    """Metrics beyond those of the kernel level, in the order of their first appearance."""
    known = {*(one.id for one in _SPREAD), *_PLAIN, metric.RMS_RATIO.id}
    names = dict.fromkeys(name for record in records for name in record.values)
    return [name for name in names if name not in known]


def _over_launches(name: str, values: Sequence[float]) -> float | None:
    """What a row says of a metric of which each launch gives one value."""
    if not values:
        return None
    return max(values) if name == metric.COMPILE_TIME.id else median(values)


def _notes(ok: Sequence[LaunchRecord], figures: Sequence[LaunchRecord]) -> list[str] | None:
    """The notes of the launches, and which figures are left out since launches lack them."""
    notes = [note for record in ok if record.timing for note in record.timing.notes]
    counts = Counter(name for record in figures for name in record.values)
    lacking: dict[int, list[str]] = {}
    for name, count in counts.items():
        if count < len(figures):
            lacking.setdefault(count, []).append(name)
    told = (
        f"in {count} of {len(figures)} launches only: {_some(lacking[count])}"
        for count in sorted(lacking, reverse=True)
    )
    loads = _loads_found(figures)
    apart = f"launches found different loads ({', '.join(map(str, loads))}): no figure is of all"
    return _distinct([*notes, *told, *([apart] if len(loads) > 1 else [])])


def _some(names: Sequence[str]) -> str:
    """`a, b, c`, or the first few and how many more."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _method_columns(records: Sequence[LaunchRecord], ok: Sequence[LaunchRecord]) -> dict[str, Any]:
    checks = [record.check for record in records if record.check is not None]
    timings = [record.timing for record in ok if record.timing is not None]
    drifts = [record.telemetry.get("control_drift") for record in ok]
    known_drifts = [drift for drift in drifts if isinstance(drift, int | float)]
    return {
        metric.RMS_RATIO.id: max((check.worst for check in checks), default=None),
        "check_method": _distinct(check.method for check in checks),
        "timer": _distinct(timing.timer for timing in timings),
        "cache": _distinct(timing.cache for timing in timings),
        "stop": _distinct(timing.stop for timing in timings),
        "version": _distinct(str(r.provenance["version"]) for r in records if _has_version(r)),
        "control_drift": max(known_drifts, key=abs, default=None),
    }


def _has_version(record: LaunchRecord) -> bool:
    return record.provenance.get("version") is not None


def _distinct(words: Iterable[str]) -> list[str] | None:
    """Each word once, several when launches differ; None when there is nothing."""
    return list(dict.fromkeys(words)) or None


def _device_columns(launches: Sequence[LaunchInfo]) -> dict[str, Any]:
    """All launches of a run are on one kind of device; the supervisor sees to that."""
    device = launches[0].device if launches else {}
    return {
        "device_name": device.get("name"),
        "device_count": device.get("count"),
        "arch": device.get("arch"),
    }
