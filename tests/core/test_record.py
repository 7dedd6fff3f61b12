"""A record survives the trip through JSON, and a failed point can't carry a figure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.outcome import Outcome
from benchx.core.record import SCHEMA, Check, LaunchRecord, Timing, Work
from benchx.store.shape import restored_record

finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
plain_maps = st.dictionaries(words, plain, max_size=3)
checks = st.builds(
    Check,
    rms_ratio=st.dictionaries(words, finite, min_size=1, max_size=3),
    bound=finite,
    method=words,
)
works = st.builds(Work, flops=finite, leaves_kv=st.booleans())
timings = st.builds(Timing, notes=st.lists(words, max_size=3).map(tuple))
common = {
    "started_at": words,
    "ended_at": words,
    "check": st.none() | checks,
    "work": st.none() | works,
    "timing": st.none() | timings,
    "telemetry": plain_maps,
    "provenance": plain_maps,
    "schema": st.just(SCHEMA),
}
good_records = st.builds(
    LaunchRecord,
    outcome=st.just(Outcome.OK),
    values=st.dictionaries(words, finite, min_size=1, max_size=4),
    samples=st.dictionaries(words, st.lists(finite, max_size=5).map(tuple), max_size=3),
    **common,
)
failed_records = st.builds(
    LaunchRecord,
    outcome=st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.OK]),
    reason=st.text(min_size=1, max_size=12),
    values=st.just({}),
    samples=st.just({}),
    **common,
)


def _record(**fields: object) -> LaunchRecord:
    base: dict[str, Any] = {
        "run_id": "r",
        "point_id": "p",
        "launch": 0,
        "started_at": "2026-01-01T00:00:00Z",
        "ended_at": "2026-01-01T00:00:01Z",
    }
    return LaunchRecord(**(base | fields))


@given(good_records | failed_records)
def test_a_record_read_back_from_json_equals_the_one_written(record: LaunchRecord) -> None:
    assert restored_record(json.loads(json.dumps(record.to_json()))) == record


@given(good_records | failed_records)
def test_writing_a_record_twice_gives_the_same_bytes(record: LaunchRecord) -> None:
    once = json.dumps(record.to_json(), sort_keys=True)
    again = restored_record(json.loads(once))
    assert json.dumps(again.to_json(), sort_keys=True) == once


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_only_an_ok_record_may_carry_a_figure(outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="can't carry figures"):
        _record(outcome=outcome, reason="why", values={"device_time_ms": 1.0})
    with pytest.raises(ValueError, match="can't carry figures"):
        _record(outcome=outcome, reason="why", samples={"device_time_ms": (1.0,)})


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_every_other_outcome_needs_a_reason(outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        _record(outcome=outcome)


def test_an_ok_record_without_a_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="ok without a value"):
        _record(outcome=Outcome.OK)


def test_the_worst_output_decides_the_error_of_a_check() -> None:
    check = Check(rms_ratio={"o": 0.001, "final_state": 0.02}, bound=0.006, method="fp64")
    assert check.worst == 0.02


@pytest.mark.parametrize("outcome", list(Outcome))
def test_skipped_and_unsupported_points_do_not_fail_a_run(outcome: Outcome) -> None:
    fine = {Outcome.OK, Outcome.SKIPPED, Outcome.UNSUPPORTED}
    assert outcome.is_failure == (outcome not in fine)
