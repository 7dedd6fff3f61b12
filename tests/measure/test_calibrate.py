"""The timer against known durations and other people's timers."""

from __future__ import annotations

import pytest

from benchx.measure.calibrate import TimerCheck, alternate, calibrate_timer, compare
from benchx.measure.device import list_devices
from benchx.measure.nvbench import parse_times_ms


def test_a_deviation_is_relative_to_the_other() -> None:
    check = compare("copy", 1.01, 1.0, "known")
    assert check.deviation == pytest.approx(0.01)
    assert check.passed is True


@pytest.mark.parametrize("ours", [0.97, 1.03])
def test_more_than_two_percent_either_way_fails(ours: float) -> None:
    assert compare("copy", ours, 1.0, "known").passed is False


def test_without_another_timer_nothing_is_claimed() -> None:
    check = TimerCheck(name="copy", ours_ms=1.0, theirs_ms=None, other="x", reason="not installed")
    assert (check.passed, check.deviation) == (None, None)


def test_pairs_cancel_a_drift_that_would_dwarf_the_tolerance() -> None:
    now = iter(range(1, 1000))
    check = alternate(
        "drifting", lambda: 100.0 + next(now), lambda: 100.0 + next(now), other="twin", rounds=40
    )
    assert check.passed is True


def test_nvbench_s_median_is_taken_and_its_mean_when_there_is_none() -> None:
    def summary(tag: str, seconds: float) -> dict[str, object]:
        data = [{"name": "value", "type": "float64", "value": str(seconds)}]
        return {"tag": f"nv/cold/time/gpu/{tag}", "data": data}

    both = {"summaries": [summary("mean", 0.003), summary("median", 0.002)]}
    mean = {"summaries": [summary("mean", 0.003)]}
    result = {
        "benchmarks": [{"name": "copy", "states": [both]}, {"name": "product", "states": [mean]}]
    }
    assert parse_times_ms(result) == {"copy": 2.0, "product": 3.0}


def test_a_benchmark_that_nvbench_skipped_is_no_figure() -> None:
    state = {"summaries": None, "is_skipped": True, "skip_reason": "no memory"}
    with pytest.raises(ValueError, match="copy: no memory"):
        parse_times_ms({"benchmarks": [{"name": "copy", "states": [state]}]})


@pytest.mark.slow
def test_a_sleep_and_a_copy_are_timed_within_two_percent_on_the_cpu() -> None:
    device = list_devices()[-1]
    # Another process may own the cores for seconds: the best of three attempts is judged.
    attempts = [calibrate_timer(device) for _ in range(3)]
    worst = [max(abs(check.deviation) for check in checks) for checks in attempts]
    assert min(worst) <= 0.02, attempts


@pytest.mark.gpu
def test_a_copy_and_a_product_are_timed_within_two_percent_on_the_gpu(gpu) -> None:  # noqa: ANN001
    checks = calibrate_timer(gpu)
    assert any(check.passed is not None for check in checks)
    assert all(check.passed is not False for check in checks), checks
