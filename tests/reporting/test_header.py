"""What stands above the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchx.reporting.header import header_of
from benchx.reporting.method import method_lines
from benchx.store import Run

RunMaker = Callable[..., Run]


def test_a_run_without_a_launch_says_what_is_not_recorded(prefill_run: Run) -> None:
    header = header_of(replace(prefill_run, launches=()))
    assert header.device == "not recorded"
    assert header.ceilings is None


def test_a_partial_run_says_how_much_of_it_is_there(prefill_run: Run) -> None:
    header = header_of(replace(prefill_run, records=prefill_run.records[:5]))
    assert header.status == "partial (5 of 18 measurements are there)"


def test_a_drift_of_the_control_kernel_is_a_warning(prefill_run: Run) -> None:
    assert (
        "launch 0: the control kernel's time changed by up to +3.1 %"
        in header_of(prefill_run).warnings
    )


def test_a_small_drift_is_none(decode_run: Run) -> None:
    assert header_of(decode_run).warnings == ()


def test_launches_on_different_devices_are_a_warning(prefill_run: Run) -> None:
    other = replace(prefill_run.launches[0], launch=1, device={"name": "Other", "arch": "o_2"})
    header = header_of(replace(prefill_run, launches=(*prefill_run.launches, other)))
    assert any("different devices" in warning for warning in header.warnings)


def test_launches_with_different_software_are_a_warning_that_names_it(prefill_run: Run) -> None:
    first = prefill_run.launches[0]
    environment = {**first.environment, "code": {"benchx": "aaaa"}, "torch": "1"}
    launches = (
        replace(first, environment=environment),
        replace(first, launch=1, environment={**environment, "torch": "2"}),
        replace(first, launch=2, environment={**environment, "torch": "2"}),
    )
    warnings = header_of(replace(prefill_run, launches=launches)).warnings
    assert "the launches differ in torch: 1 in launch 0, 2 in launches 1, 2" in warnings
    assert not any("code benchx" in warning for warning in warnings)


def test_a_backend_whose_package_changed_between_launches_is_a_warning(prefill_run: Run) -> None:
    first = prefill_run.records[0]
    other = replace(first, launch=1, provenance={"package": "gamma", "version": "2"})
    mine = replace(first, provenance={"package": "gamma", "version": "1"})
    warnings = header_of(replace(prefill_run, records=(mine, other))).warnings
    assert "the launches differ in gamma: 1 in launch 0, 2 in launch 1" in warnings


def test_a_launch_that_ended_early_is_a_warning(prefill_run: Run) -> None:
    cut = replace(prefill_run.launches[0], ended="interrupted")
    assert any(
        "interrupted" in line for line in header_of(replace(prefill_run, launches=(cut,))).warnings
    )


def test_versions_of_backends_that_gave_a_figure_are_named(prefill_run: Run) -> None:
    assert "gamma 1.2.3" in header_of(prefill_run).versions_text()


def test_half_a_ceiling_is_none(prefill_run: Run) -> None:
    launch = replace(prefill_run.launches[0], ceilings={"copy_gb_s": 4000.0})
    assert header_of(replace(prefill_run, launches=(launch,))).ceilings is None


def test_the_method_says_how_many_points_were_timed_in_which_way(prefill_run: Run) -> None:
    rows = [dict(row) for row in prefill_run.rows]
    rows[0]["stop"] = ["max_time", "target_error"]
    lines = method_lines(replace(prefill_run, rows=tuple(rows)))
    stop = next(line for line in lines if line.startswith("Sampling ended by"))
    assert "(13 of 14 points)" in stop
    assert "max_time: the time limit and target_error" in stop


def test_the_ceilings_are_those_of_the_last_worker_since_they_only_rise(prefill_run: Run) -> None:
    first = prefill_run.launches[0]
    raised = replace(first, ceilings={**first.ceilings, "copy_gb_s": 9000.0})
    header = header_of(replace(prefill_run, launches=(first, raised)))
    assert header.ceilings is not None
    assert header.ceilings.copy_gb_s == 9000.0


def test_the_largest_drift_of_a_launch_counts_even_when_the_last_look_is_back(
    prefill_run: Run,
) -> None:
    spike = replace(prefill_run.launches[0], control_ms=(1.0, 1.08, 0.95, 1.001), drift=0.001)
    (warning,) = header_of(replace(prefill_run, launches=(spike,))).warnings
    assert warning == "launch 0: the control kernel's time changed by up to +8.0 %"


def test_the_version_of_an_engine_is_named_without_its_name_twice(serving_run: Run) -> None:
    provenance = {"engine": "vllm", "version": "vllm 0.26.0"}
    ok = next(record for record in serving_run.records if record.values)
    run = replace(serving_run, records=(replace(ok, provenance=provenance),))
    assert header_of(run).versions["vllm"] == "0.26.0"


def test_launches_with_different_versions_are_a_warning_and_all_are_named(
    prefill_run: Run,
) -> None:
    first = prefill_run.launches[0]
    versions = {**first.environment, "torch": "9.9.9"}
    run = replace(prefill_run, launches=(first, replace(first, launch=1, environment=versions)))
    header = header_of(run)
    assert header.versions["torch"] == f"{first.environment['torch']}, 9.9.9"
    assert any("differ in torch" in warning for warning in header.warnings)


def test_a_backend_whose_version_changed_between_launches_is_a_warning(prefill_run: Run) -> None:
    ok = next(record for record in prefill_run.records if record.values)
    newer = replace(ok, launch=1, provenance={"package": "gamma", "version": "1.3.0"})
    header = header_of(replace(prefill_run, records=(*prefill_run.records, newer)))
    assert header.versions["gamma"] == "1.2.3, 1.3.0"
    assert any("differ in gamma" in warning for warning in header.warnings)


def test_launches_with_different_ceilings_are_a_warning(prefill_run: Run) -> None:
    first = prefill_run.launches[0]
    raised = replace(first, launch=1, ceilings={**first.ceilings, "copy_gb_s": 9000.0})
    header = header_of(replace(prefill_run, launches=(first, raised)))
    assert any("measured anew" in warning and "9000" in warning for warning in header.warnings)


def test_the_command_can_be_pasted_into_a_shell(prefill_run: Run) -> None:
    meta = replace(prefill_run.meta, command=("benchx", "run", "my file.yaml", "--set", "a=[1, 2]"))
    header = header_of(replace(prefill_run, meta=meta))
    assert header.command == "benchx run 'my file.yaml' --set 'a=[1, 2]'"
