from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.errors import StoreError
from benchx.core.metric import METRICS
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import Check, LaunchRecord, Timing
from benchx.runner.aggregate import derive_rows, load_run, outcome_of
from benchx.store import LaunchInfo, PlanEntry, RunMeta, RunWriter, read_run

POINT = Point(kind="kernel", subject="op", backend="b", params={"heads": 4, "dtype": "float32"})


def record(launch: int, outcome: Outcome = Outcome.OK, **fields: object) -> LaunchRecord:
    base: dict[str, object] = {
        "run_id": "r",
        "point_id": POINT.point_id,
        "launch": launch,
        "outcome": outcome,
        "started_at": "t",
        "ended_at": "t",
    }
    if outcome is Outcome.OK:
        base["values"] = {"device_time_ms": float(launch + 1)}
    else:
        base["reason"] = f"bad {launch}"
    return LaunchRecord(**(base | fields))  # type: ignore[arg-type]


def meta(launches: int) -> RunMeta:
    return RunMeta(
        run_id="",
        scenario="s",
        source="s.yaml",
        resolved={},
        plan=(PlanEntry(POINT, launches),),
        seeds=(0,),
        command=(),
        started_at="t",
        benchx_version="0",
    )


def row_of(tmp_path: Path, records: Sequence[LaunchRecord], launches: int = 3) -> dict[str, object]:
    with RunWriter.create(tmp_path, meta(launches)) as writer:
        device = {"name": "fake", "count": 2, "arch": "x"}
        writer.append_launch(LaunchInfo(launch=0, worker=0, started_at="t", device=device))
        for entry in records:
            writer.append(entry)
    (row,) = derive_rows(read_run(writer.path))
    return dict(row)


def test_a_figure_is_the_median_over_launches_with_an_interval_over_launches(
    tmp_path: Path,
) -> None:
    row = row_of(tmp_path, [record(0), record(1), record(2)])
    assert row["outcome"] == "ok"
    assert row["device_time_ms_p50"] == 2.0
    assert (row["device_time_ms_ci_low"], row["device_time_ms_ci_high"]) == (1.0, 3.0)


def test_seven_launches_give_their_range_since_the_next_ranks_cover_less_than_95_percent(
    tmp_path: Path,
) -> None:
    row = row_of(tmp_path, [record(launch) for launch in range(7)], launches=7)
    assert (row["device_time_ms_ci_low"], row["device_time_ms_ci_high"]) == (1.0, 7.0)


def test_two_launches_give_a_median_but_no_interval(tmp_path: Path) -> None:
    row = row_of(tmp_path, [record(0), record(1)], launches=2)
    assert row["device_time_ms_p50"] == 1.5
    assert row["device_time_ms_ci_low"] is None


def test_medians_of_requests_have_an_interval_over_launches_too(tmp_path: Path) -> None:
    launches = [
        record(launch, values={"ttft_ms_p50": 10.0 + launch, "error_rate": 0.0})
        for launch in range(3)
    ]
    row = row_of(tmp_path, launches)
    assert (row["ttft_ms_p50"], row["error_rate"]) == (11.0, 0.0)
    assert (row["ttft_ms_ci_low"], row["ttft_ms_ci_high"]) == (10.0, 12.0)
    assert "error_rate_ci_low" not in row


def test_a_value_that_is_no_registered_metric_is_refused_instead_of_becoming_an_axis(
    tmp_path: Path,
) -> None:
    foreign = record(0, values={"device_time_ms": 1.0, "warp_factor": 9.0})
    with pytest.raises(StoreError, match="'warp_factor', which is no registered metric"):
        row_of(tmp_path, [foreign])


def test_a_high_percentile_needs_samples_to_stand_on(tmp_path: Path) -> None:
    few = {"samples": {"device_time_ms": (1.0, 2.0)}}
    many = {"samples": {"device_time_ms": tuple(float(i) for i in range(100))}}
    assert row_of(tmp_path, [record(0, **few)], launches=1)["device_time_ms_p95"] is None
    row = row_of(tmp_path, [record(0, **many)], launches=1)
    assert row["device_time_ms_p95"] == pytest.approx(94.05)


def test_a_point_that_failed_in_one_launch_is_partial_and_has_no_figure(tmp_path: Path) -> None:
    row = row_of(tmp_path, [record(0), record(1, Outcome.CRASHED), record(2)])
    assert row["outcome"] == "partial"
    assert row["reason"] == "ok in 2 of 3 launches; launch 1 was crashed: bad 1"
    assert row["device_time_ms_p50"] is None
    assert row["launches"] == 2


def test_a_point_that_is_not_measured_yet_is_partial(tmp_path: Path) -> None:
    row = row_of(tmp_path, [])
    assert (row["outcome"], row["launches"]) == ("partial", 0)
    assert row["reason"] == "not measured yet in any of the 3 launches"
    assert outcome_of([], launches=1) == (Outcome.PARTIAL, "not measured yet")


def test_an_interrupted_run_shows_what_it_has_and_in_how_many_launches(tmp_path: Path) -> None:
    row = row_of(tmp_path, [record(0), record(1)])
    assert (row["outcome"], row["launches"], row["device_time_ms_p50"]) == ("ok", 2, 1.5)
    assert row["device_time_ms_ci_low"] is None


@given(
    outcomes=st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=5),
    launches=st.integers(5, 6),
)
def test_only_ok_in_every_launch_until_now_is_ok_and_all_else_has_a_reason(
    outcomes: list[Outcome], launches: int
) -> None:
    records = [record(launch, outcome) for launch, outcome in enumerate(outcomes)]
    outcome, reason = outcome_of(records, launches)
    everywhere = set(outcomes) == {Outcome.OK}
    assert (outcome is Outcome.OK) == everywhere
    assert (reason is None) == everywhere
    if Outcome.OK not in outcomes:
        assert outcome is outcomes[0]


def test_a_row_bears_identity_axes_method_and_device(tmp_path: Path) -> None:
    details = {
        "check": Check(rms_ratio={"o": 0.1, "s": 0.2}, bound=1.0, method="fp64"),
        "timing": Timing(timer="cpu", cache="cold", stop="max_time", samples=7, notes=("n",)),
        "telemetry": {"control_drift": -0.3},
        "provenance": {"version": "1.2"},
    }
    row = row_of(tmp_path, [record(0, **details)], launches=1)
    assert row["point_id"] == POINT.point_id
    assert row["group_id"] == POINT.group_id
    assert (row["kind"], row["op"], row["backend"], row["engine"]) == ("kernel", "op", "b", None)
    assert (row["heads"], row["dtype"]) == (4, "float32")
    assert (row["rms_ratio"], row["check_method"]) == (0.2, ["fp64"])
    assert (row["timer"], row["cache"], row["stop"], row["notes"]) == (
        ["cpu"],
        ["cold"],
        ["max_time"],
        ["n"],
    )
    assert (row["samples"], row["version"], row["control_drift"]) == (7, ["1.2"], -0.3)
    assert (row["device_name"], row["device_count"], row["arch"]) == ("fake", 2, "x")


def test_what_was_not_measured_is_null_never_zero(tmp_path: Path) -> None:
    row = row_of(tmp_path, [record(0)], launches=1)
    assert row["peak_memory_bytes"] is None
    assert row["call_time_ms_p50"] is None
    assert row["control_drift"] is None


def test_a_wrong_point_carries_its_error_and_no_figure(tmp_path: Path) -> None:
    check = Check(rms_ratio={"o": 0.5}, bound=0.1, method="fp64")
    row = row_of(tmp_path, [record(0, Outcome.WRONG, check=check)], launches=1)
    assert row["rms_ratio"] == 0.5
    assert row["device_time_ms_p50"] is None


def test_a_metric_of_another_level_gets_its_own_column(tmp_path: Path) -> None:
    values = {"device_time_ms": 1.0, "goodput_req_s": 7.0}
    assert row_of(tmp_path, [record(0, values=values)], launches=1)["goodput_req_s"] == 7.0


def test_a_figure_that_a_launch_lacks_is_left_out_and_a_note_tells_of_it(tmp_path: Path) -> None:
    """A search for a load that finds one in two of three launches has no median of three."""
    found = [
        {"slo_in_flight_max": 64.0, "ttft_ms_p50": 1.0, "ttft_ms_p99": 9.0},
        {"slo_in_flight_max": 16.0, "ttft_ms_p50": 2.0},
        {"ttft_ms_p50": 3.0},
    ]
    row = row_of(tmp_path, [record(i, values=values) for i, values in enumerate(found)])
    assert (row["slo_in_flight_max"], row["ttft_ms_p99"], row["ttft_ms_p50"]) == (None, None, 2.0)
    assert row["launches"] == 3
    assert row["notes"] == [
        "in 2 of 3 launches only: slo_in_flight_max",
        "in 1 of 3 launches only: ttft_ms_p99",
    ]


def test_figures_of_launches_that_a_search_ended_at_different_loads_are_not_mixed(
    tmp_path: Path,
) -> None:
    def found(launch: int, load: float, ttft_ms: float) -> LaunchRecord:
        values = {"slo_in_flight_max": load, "ttft_ms_p50": ttft_ms}
        searched = {"axis": "concurrency", "found": load}
        return replace(record(launch, values=values), provenance={"searched": searched})

    apart = row_of(tmp_path / "a", [found(0, 64.0, 900.0), found(1, 16.0, 90.0)], launches=2)
    assert (apart["slo_in_flight_max"], apart["ttft_ms_p50"]) == (40.0, None)
    assert apart["notes"] == ["launches found different loads (64.0, 16.0): no figure is of all"]
    alike = row_of(tmp_path / "b", [found(0, 64.0, 900.0), found(1, 64.0, 700.0)], launches=2)
    assert (alike["slo_in_flight_max"], alike["ttft_ms_p50"]) == (64.0, 800.0)


def test_a_time_that_a_launch_lacks_has_no_percentile_either(tmp_path: Path) -> None:
    many = tuple(float(i) for i in range(100))
    both = {"device_time_ms": 1.0, "call_time_ms": 1.0}
    launches = [
        record(0, values=both, samples={"call_time_ms": many}),
        record(1, values={"device_time_ms": 1.0}, samples={"device_time_ms": many}),
    ]
    row = row_of(tmp_path, launches, launches=2)
    assert (row["call_time_ms_p50"], row["call_time_ms_p95"]) == (None, None)
    assert row["device_time_ms_p50"] == 1.0


def test_a_note_of_many_figures_names_the_first_and_counts_the_rest(tmp_path: Path) -> None:
    values = {"device_time_ms": 1.0}
    names = sorted(one.id for one in METRICS if one.id != "device_time_ms")[:9]
    more = dict.fromkeys(names, 1.0)
    row = row_of(tmp_path, [record(0, values=values | more), record(1, values=values)], launches=2)
    (note,) = row["notes"]  # type: ignore[misc]
    assert note.startswith(f"in 1 of 2 launches only: {names[0]}, {names[1]}, ")
    assert note.endswith(f"{names[5]} and 3 more")


def test_compile_time_is_the_largest_as_later_launches_find_it_compiled(tmp_path: Path) -> None:
    launches = [
        record(launch, values={"device_time_ms": 1.0, "compile_time_s": seconds})
        for launch, seconds in enumerate((104.0, 0.05, 0.06))
    ]
    assert row_of(tmp_path, launches)["compile_time_s"] == 104.0


def test_a_note_that_contains_a_plus_stays_one_note(tmp_path: Path) -> None:
    timing = Timing(timer="cpu", cache="cold", stop="max_time", samples=1, notes=("a+b", "c"))
    check = Check(rms_ratio={"o": 0.1}, bound=1.0, method="fp64, heads 0+31 of 64")
    row = row_of(tmp_path, [record(0, timing=timing, check=check)], launches=1)
    assert row["notes"] == ["a+b", "c"]
    assert row["check_method"] == ["fp64, heads 0+31 of 64"]


def test_rows_left_behind_by_a_kill_are_derived_anew(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, meta(1)) as writer:
        writer.write_points(derive_rows(read_run(writer.path)))
        writer.append(record(0))
    assert read_run(writer.path).rows[0]["outcome"] == "partial"
    run = load_run(writer.path)
    assert run.rows_current
    assert run.rows[0]["outcome"] == "ok"


def test_rows_survive_the_way_through_parquet(tmp_path: Path) -> None:
    timing = Timing(timer="cpu", cache="cold", stop="max_time", samples=1, notes=("a+b", "c"))
    with RunWriter.create(tmp_path, meta(1)) as writer:
        writer.append(record(0, timing=timing))
        rows = derive_rows(read_run(writer.path))
        writer.write_points(rows)
    stored = read_run(writer.path).rows
    assert json.dumps(stored) == json.dumps(rows)
