"""Hand-made runs. Every figure in here is invented: device and backends do not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import Check, LaunchRecord, Timing
from benchx.reporting.document import Section, build_document
from benchx.store import LaunchInfo, PlanEntry, Run, RunMeta
from benchx.store.meta import encode_meta
from benchx.store.plain import to_line
from benchx.store.points import PointTable, write_points

RowMaker = Callable[..., list[dict[str, Any]]]
RunMaker = Callable[..., Run]
SectionMaker = Callable[..., Section]

MIXED = "1300+547+2048+963+271+3063"
NO_TUNER = "unsupported: no kernel for this many heads"


@pytest.fixture(name="make_rows")
def make_rows_fixture() -> RowMaker:
    """Rows as points.parquet has them."""
    return make_rows


@pytest.fixture(name="make_run")
def make_run_fixture() -> RunMaker:
    """A run around rows."""
    return make_run


@pytest.fixture
def section_of() -> SectionMaker:
    """The only section of a run with these rows."""

    def build(
        rows: Sequence[Mapping[str, Any]], *, ceilings: Mapping[str, Any] | None = None
    ) -> Section:
        run = make_run(rows, run_id=rows[0]["run_id"], ceilings=ceilings)
        return build_document([run]).sections[0]

    return build


@pytest.fixture
def prefill_run() -> Run:
    """Two widths by three batch shapes, three backends; one fails, one can't, one is noted."""
    points = [
        {"heads": heads, "seqlens": s} for heads in (96, 12) for s in ("8192", MIXED, "8x1024")
    ]
    times: dict[str, list[float | str]] = {
        "alpha": [2.6, 2.7, 2.6, NO_TUNER, NO_TUNER, NO_TUNER],
        "beta": [1.4, 1.404, 1.2, 0.86, 0.42, 0.22],
        "gamma": [1.42, 1.402, 1.18, 0.2, "oom: out of memory | 9 GiB wanted", 0.26],
    }
    fixed = {"head_dim": 128, "dtype": "bfloat16", "initial_state": True}
    rows = make_rows("kda_prefill", points, times, run_id="synthetic-1", fixed=fixed)
    rows[2]["notes"] = "host_bound+sw_power_cap"
    rows[2]["samples"] = 287
    return make_run(rows, drift=0.031)


@pytest.fixture
def decode_run() -> Run:
    """One width, four batches, two backends, no cache left behind."""
    points = [{"heads": 32, "batch": batch} for batch in (1, 8, 64, 256)]
    times = {"alpha": [0.009, 0.019, 0.093, 0.393], "beta": [0.008, 0.017, 0.09, 0.4]}
    rows = make_rows("kda_decode", points, times, run_id="synthetic-2", leaves_kv=False)
    return make_run(rows, run_id="synthetic-2")


@pytest.fixture
def run_folder(tmp_path: Path, prefill_run: Run) -> Path:
    """`prefill_run` on disk."""
    folder = tmp_path / prefill_run.meta.run_id
    folder.mkdir()
    (folder / "run.json").write_bytes(encode_meta(prefill_run.meta))
    for name, items in (("records", prefill_run.records), ("launches", prefill_run.launches)):
        lines = [to_line(item.to_json()) + "\n" for item in items]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    table = PointTable(prefill_run.rows, len(prefill_run.records))
    write_points(folder / "points.parquet", table)
    return folder


def make_rows(
    op: str,
    points: Sequence[Mapping[str, Any]],
    times_ms: Mapping[str, Sequence[float | str]],
    *,
    run_id: str,
    fixed: Mapping[str, Any] | None = None,
    spread: float = 0.002,
    leaves_kv: bool = True,
) -> list[dict[str, Any]]:
    """Rows as points.parquet has them.

    Args:
        op: Operator.
        points: Axis values, one mapping per group.
        times_ms: Backend -> one entry per point: a time, or `outcome: reason`.
        run_id: Name of the run.
        fixed: Axes that are equal everywhere.
        spread: Half-width of the interval over the median.
        leaves_kv: Whether KV throughput is defined.
    """
    rows = []
    for index, axes in enumerate(points):
        for backend, times in times_ms.items():
            params = {**(fixed or {}), **axes}
            point = Point(kind="kernel", subject=op, backend=backend, params=params)
            row: dict[str, Any] = {
                "run_id": run_id, "scenario": "synthetic", "point_id": point.point_id,
                "group_id": point.group_id, "kind": "kernel", "op": op, "backend": backend,
                "engine": None, "outcome": "ok", "reason": None, "launches": 3, "samples": 300,
                **params,
            }  # fmt: skip
            entry = times[index]
            if isinstance(entry, str):
                outcome, _, reason = entry.partition(": ")
                row |= {"outcome": outcome, "reason": reason, "launches": 0, "samples": 0}
            else:
                row |= figures(entry, params, spread=spread, leaves_kv=leaves_kv)
            rows.append(row)
    return rows


def figures(
    time_ms: float, params: Mapping[str, Any], *, spread: float, leaves_kv: bool
) -> dict[str, Any]:
    """Figures of one ok row, from invented work: 1 GFLOP and 1 MB per head."""
    heads = int(params.get("heads", 8))
    flops, nbytes = 2e11 * heads / 96, 1e9 * heads / 96
    seconds = time_ms / 1e3
    found: dict[str, Any] = {
        "device_time_ms_p50": time_ms,
        "device_time_ms_ci_low": time_ms * (1 - spread),
        "device_time_ms_ci_high": time_ms * (1 + 1.5 * spread),
        "device_time_ms_p95": time_ms * (1 + 4 * spread),
        "compute_tflop_s": flops / seconds / 1e12,
        "bandwidth_gb_s": nbytes / seconds / 1e9,
        "roofline_share": nbytes / 4e12 / seconds,
        "token_throughput_tok_s": 8192 / seconds,
        "rms_ratio": 0.0021,
        "check_method": "fp64 chunked", "timer": "events", "cache": "cold",
        "stop": "target_error", "notes": None, "device_name": "Synthetic 1", "device_count": 1,
        "arch": "sx_1", "version": "1.2.3", "control_drift": 0.001,
    }  # fmt: skip
    if leaves_kv:
        found |= {"kv_throughput_gb_s": nbytes / 10 / seconds / 1e9}
    return found


def make_run(
    rows: Sequence[Mapping[str, Any]],
    *,
    run_id: str = "synthetic-1",
    ceilings: Mapping[str, Any] | None = None,
    drift: float | None = 0.001,
    records: Sequence[LaunchRecord] | None = None,
    title: str = "Synthetic points",
) -> Run:
    """A run that holds these rows; complete unless fewer records are given."""
    axes = [
        "heads", "seqlens", "batch", "context", "tokens", "head_dim", "dtype", "initial_state",
    ]  # fmt: skip
    plan = tuple(
        PlanEntry(
            Point(
                kind="kernel",
                subject=row["op"],
                backend=row["backend"],
                params={name: row[name] for name in axes if name in row},
            ),
            1,
        )
        for row in rows
    )
    meta = RunMeta(
        run_id=run_id,
        scenario="synthetic",
        source="synthetic.yaml",
        resolved={
            "name": "synthetic",
            "title": title,
            "parts": [{"op": "x", "measure": {"launches": 3, "cache": "cold"}}],
        },
        plan=plan,
        seeds=(7,),
        command=("benchx", "run", "synthetic"),
        started_at="2030-01-02T03:04:05Z",
        benchx_version="0.1.0",
    )
    launch = LaunchInfo(
        launch=0,
        worker=0,
        started_at="2030-01-02T03:04:06Z",
        device={"name": "Synthetic 1", "count": 1, "arch": "sx_1", "vendor": "nvidia"},
        environment={"torch": "9.9.0", "triton": "8.8.0", "python": "3.11.0"},
        ceilings=DEFAULT_CEILINGS if ceilings is None else ceilings,
        control_ms=(1.0, 1.001),
        drift=drift,
        ended_at="2030-01-02T03:05:06Z",
        ended="complete",
    )
    made = tuple(_record(run_id, row) for row in rows) if records is None else tuple(records)
    return Run(
        path=Path("results") / run_id,
        meta=meta,
        launches=(launch,),
        records=made,
        rows=tuple(rows),
        rows_current=True,
        notes=(),
    )


DEFAULT_CEILINGS = {"copy_gb_s": 4000.0, "matmul_tflop_s": 750.0, "matmul_dtype": "bfloat16"}


def _record(run_id: str, row: Mapping[str, Any]) -> LaunchRecord:
    outcome = Outcome(row["outcome"])
    is_ok = outcome is Outcome.OK
    return LaunchRecord(
        run_id=run_id,
        point_id=row["point_id"],
        launch=0,
        outcome=outcome,
        reason=row["reason"],
        started_at="2030-01-02T03:04:07Z",
        ended_at="2030-01-02T03:04:08Z",
        values={"device_time_ms": row["device_time_ms_p50"]} if is_ok else {},
        check=Check(rms_ratio={"o": 0.0021}, bound=0.006, method="fp64 chunked") if is_ok else None,
        timing=Timing(timer="events", cache="cold", stop="target_error", samples=100),
        provenance={"package": row["backend"], "version": "1.2.3"} if is_ok else {},
    )
