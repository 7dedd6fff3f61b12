"""Hand-made runs. Every figure in here is invented: device and backends do not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import Check, LaunchRecord, Timing
from benchx.reporting.chart_canvas import themed
from benchx.reporting.document import Section, build_document
from benchx.reporting.figures import plan_figures
from benchx.reporting.theme import styles_for
from benchx.store import LaunchInfo, PlanEntry, Run, RunMeta
from benchx.store.meta import encode_meta
from benchx.store.plain import to_line
from benchx.store.points import PointTable, write_points

RowMaker = Callable[..., list[dict[str, Any]]]
RunMaker = Callable[..., Run]
SectionMaker = Callable[..., Section]

PRICED = {"hardware": "auto", "prices": "rental"}
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
def drawn() -> Callable[[Section, str], Figure]:
    """The one figure of a section whose name ends so, laid out."""

    def draw(section: Section, ending: str) -> Figure:
        plans = plan_figures(section, styles_for(section.frame["backend"])).plans
        (plan,) = [plan for plan in plans if plan.name.endswith(ending)]
        with themed():
            figure = plan.build()
            figure.draw_without_rendering()
        return figure

    return draw


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
    rows[2]["notes"] = ["host_bound", "sw_power_cap"]
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
        lines = [to_line(item.to_json()).decode() + "\n" for item in items]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    table = PointTable(prefill_run.rows, len(prefill_run.records))
    write_points(folder / "points.parquet", table)
    return folder


@pytest.fixture(name="make_serving_run")
def make_serving_run_fixture() -> RunMaker:
    """A run of serving points."""
    return make_serving_run


@pytest.fixture
def serving_run() -> Run:
    """One workload at five concurrencies on two GPUs with a known price; the last one fails."""
    return make_serving_run([{"concurrency": load} for load in (1, 4, 16, 64, 256)], failed=1)


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
        "check_method": ["fp64 chunked"], "timer": ["events"], "cache": ["cold"],
        "stop": ["target_error"], "notes": None, "device_name": "Synthetic 1", "device_count": 1,
        "arch": "sx_1", "version": ["1.2.3"], "control_drift": 0.001,
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
        control_ms=(1.0, 1.0 + drift) if drift is not None else (1.0,),
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


def make_serving_run(
    points: Sequence[Mapping[str, Any]],
    *,
    failed: int = 0,
    engine: str = "alpha",
    cost: Mapping[str, Any] | None = PRICED,
    provenance: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    run_id: str = "synthetic-3",
) -> Run:
    """A run of serving points.

    Args:
        points: Axis values, one mapping per point.
        failed: So many at the end crashed.
        engine: Name of the engine.
        cost: The scenario's `cost`.
        provenance: What replaces entries of the records' provenance.
        changes: What replaces columns of the ok rows; None takes a figure away.
        run_id: Name of the run.
    """
    fixed = {"input_len": 1024, "output_len": 256}
    made = [
        Point(kind="serving", subject="random", backend=engine, params={**fixed, **axes})
        for axes in points
    ]
    rows: list[dict[str, Any]] = []
    for index, point in enumerate(made):
        row: dict[str, Any] = {
            "run_id": run_id, "scenario": "synthetic", "point_id": point.point_id,
            "group_id": point.group_id, "kind": "serving", "op": "random", "backend": None,
            "engine": engine, "outcome": "ok", "reason": None, "launches": 3, "samples": 1200,
            **point.params,
        }  # fmt: skip
        if index >= len(made) - failed:
            row |= {"outcome": "crashed", "reason": "the engine ended (exit status 1)"}
            row |= {"launches": 0, "samples": 0}
        else:
            row |= serving_figures(point.params) | dict(changes or {})
        rows.append(row)
    told = {
        "engine": engine, "version": f"{engine} 4.5.6", "model": "tiny-9b", "gpus": 2,
        "gpus_source": "nvml", "gpu_names": ["NVIDIA H200", "NVIDIA H200"],
    } | dict(provenance or {})  # fmt: skip
    run = make_run(rows, run_id=run_id, records=[])
    part = {"kind": "serving", "name": "synthetic", "engine": {"name": engine}, "cost": cost}
    part |= {"slo": {"ttft": "2.0s", "tpot": "0.05s"}, "workload": {"dataset": "random"}}
    part |= {"measure": {"launches": 3, "cache": "cold", "seed": 0}}
    meta = replace(
        run.meta,
        plan=tuple(PlanEntry(point, 1) for point in made),
        resolved={"name": "synthetic", "title": "Synthetic serving", "parts": [part]},
    )
    records = tuple(_serving_record(row, told) for row in rows)
    return replace(run, meta=meta, records=records)


def serving_figures(params: Mapping[str, Any]) -> dict[str, Any]:
    """Invented: throughput saturates and times grow with the load."""
    load = float(params.get("concurrency") or params.get("request_rate") or 1)
    tpot = 5.0 * (1 + load / 40) * float(params.get("slowness", 1))
    ttft = 40.0 + 6 * load
    output = 1000 * load / tpot
    return {
        "ttft_ms_p50": ttft, "ttft_ms_ci_low": 0.96 * ttft, "ttft_ms_ci_high": 1.05 * ttft,
        "ttft_ms_p99": 2.2 * ttft, "tpot_ms_p50": tpot, "tpot_ms_ci_low": 0.99 * tpot,
        "tpot_ms_ci_high": 1.02 * tpot, "tpot_ms_p99": 1.3 * tpot, "e2e_ms_p50": ttft + 255 * tpot,
        "interactivity_tok_s_p50": 1000 / tpot, "output_throughput_tok_s": output,
        "input_throughput_tok_s": 4 * output, "total_throughput_tok_s": 5 * output,
        "output_throughput_tok_s_per_gpu": output / 2, "kv_throughput_gb_s": 0.45 - load / 1000,
        "kv_throughput_gbit_s": 3.6 - load / 125, "kv_prefill_source": ["server"],
        "goodput_req_s": output / 300, "goodput_share": 0.87, "error_rate": 0.0,
        "timer": ["client"], "cache": ["cold"], "stop": ["complete"], "notes": None,
        "device_name": "Synthetic 1", "device_count": 1,
        "version": ["4.5.6"],
    }  # fmt: skip


def _serving_record(row: Mapping[str, Any], provenance: Mapping[str, Any]) -> LaunchRecord:
    is_ok = row["outcome"] == Outcome.OK.value
    return LaunchRecord(
        run_id=row["run_id"],
        point_id=row["point_id"],
        launch=0,
        outcome=Outcome(row["outcome"]),
        reason=row["reason"],
        started_at="2030-01-02T03:04:07Z",
        ended_at="2030-01-02T03:04:08Z",
        values={"e2e_ms_p50": row["e2e_ms_p50"]} if is_ok else {},
        timing=Timing(timer="client", cache="cold", stop="complete", samples=400),
        provenance=provenance,
    )
