"""Every way in which a backend can be bad, measured in this process on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchx.core.call import Reference
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.measure.ceilings import Ceilings
from benchx.measure.control import ControlKernel
from benchx.measure.device import probe_device
from benchx.measure.interleave import measure_interleaved
from benchx.measure.telemetry import _SOURCES
from benchx.measure.telemetry_reading import Reading
from benchx.ops.base import OPERATORS
from benchx.runner.events import Ceilings as CeilingsAgain
from benchx.runner.events import Event, Phase, Recorded
from benchx.runner.kernel_level import KernelLevel
from benchx.runner.kernel_timing import AnnouncingTimer
from benchx.runner.session import Session
from benchx.runner.spec import Group, LaunchSpec
from benchx.runner.worker import work_through

SETTINGS: dict[str, Any] = {
    "cache": "warm",
    "timer": "auto",
    "order": "interleaved",
    "target_error": 0.5,
    "min_samples": 6,
    "max_samples": 20,
    "max_time_s": 0.05,
    "setup_time_limit_s": 10.0,
    "seed": 0,
    "max_rms_ratio": None,
}
CEILINGS = {"copy_gb_s": 10.0, "matmul_tflop_s": 1.0}


class Collector:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, event: Event) -> None:
        self.events.append(event)


class Outcomes(dict[str, LaunchRecord]):
    """Records by backend, and the events that led to them."""

    events: list[Event]


Measure = Callable[..., Outcomes]


@pytest.fixture(scope="module")
def measure(fakes_on_path: None) -> Measure:
    """Measures backends of the fake operator as one group."""
    import bad_backends  # noqa: F401 - registers

    def go(
        *backends: str,
        params: Mapping[str, Any] | None = None,
        launch: int = 0,
        ceilings: Mapping[str, float] = CEILINGS,
        **settings: object,
    ) -> Outcomes:
        wanted = {"size": 64, "reference_ok": True} | dict(params or {})
        points = tuple(
            Point(kind="kernel", subject="doubling", backend=name, params=wanted)
            for name in backends
        )
        spec = LaunchSpec(
            run_id="r",
            launch=launch,
            worker=0,
            groups=(Group(points),),
            settings={0: SETTINGS | settings},
        )
        channel = Collector()
        session = Session(spec=spec, device=probe_device(), ceilings=ceilings, channel=channel)
        session.drift.look = lambda **_: None  # type: ignore[method-assign]
        KernelLevel().measure(spec.groups[0], session)
        names = {point.point_id: point.backend for point in points}
        found = Outcomes()
        for event in channel.events:
            if isinstance(event, Recorded):
                assert names[event.record.point_id] not in found
                found[names[event.record.point_id]] = event.record
        found.events = channel.events
        return found

    return go


BAD = {
    "wrong": (Outcome.WRONG, "o: rms ratio 0.5 is above 1e-06"),
    "nan": (Outcome.WRONG, "o: 1 of 64 values are NaN or infinite"),
    "shape": (Outcome.WRONG, "o: shape (63,), expected (64,)"),
    "dtype": (Outcome.WRONG, "o: dtype float64, expected float32"),
    "nothing": (Outcome.WRONG, "o: None, expected a tensor"),
    "nameless": (Outcome.WRONG, "o: missing"),
    "spoils": (Outcome.WRONG, "o: "),
    "raises": (Outcome.CRASHED, "RuntimeError: kernel launch failed"),
    "refuses": (Outcome.CRASHED, "ValueError: can't prepare this"),
    "quits": (Outcome.CRASHED, "SystemExit: 3"),
    "confused": (Outcome.CRASHED, "RuntimeError: asked too much"),
    "late": (Outcome.CRASHED, "RuntimeError: the 60th call failed"),
    "memory": (Outcome.OOM, "asked for 7.00 GiB: MemoryError"),
    "allocates": (Outcome.OOM, "asked for 281474976710656 bytes"),
    "absent": (Outcome.SKIPPED, "not installed; install: pip install absent"),
    "incapable": (Outcome.UNSUPPORTED, "can't double this"),
}


@pytest.fixture(scope="module")
def zoo(measure: Measure) -> Outcomes:
    """All bad backends and two good ones, as one group."""
    return measure("good", *BAD, "other", min_samples=20, target_error=0.0001)


@pytest.mark.parametrize("backend", BAD)
def test_a_bad_backend_has_an_outcome_a_reason_and_no_figure(zoo: Outcomes, backend: str) -> None:
    outcome, reason = BAD[backend]
    assert zoo[backend].outcome is outcome
    assert reason in (zoo[backend].reason or "")
    assert not zoo[backend].values


def test_good_backends_are_measured_whatever_their_neighbours_do(zoo: Outcomes) -> None:
    assert zoo["good"].values["device_time_ms"] > 0
    assert zoo["other"].values["device_time_ms"] > 0


def test_a_wrong_backend_carries_its_error(zoo: Outcomes) -> None:
    check = zoo["wrong"].check
    assert check is not None
    assert check.worst == pytest.approx(0.5)


def test_each_launch_is_judged_in_its_turn(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, turns = OPERATORS.get("doubling"), []

    def in_turn(self: Any, inputs: Any, turn: int) -> Reference:  # noqa: ANN401
        turns.append(turn)
        return self.reference(inputs)

    monkeypatch.setattr(type(operator), "reference_in_turn", in_turn, raising=False)
    for launch in (0, 2):
        assert measure("good", launch=launch, seed=5)["good"].outcome is Outcome.OK
    assert turns == [5, 7]


def test_what_the_timed_inputs_hide_is_wrong_on_the_second_ones(measure: Measure) -> None:
    found = measure("good", "blind", "rough", "coarse", params={"size": 96})
    assert found["blind"].outcome is Outcome.WRONG
    words = "on the second, harder inputs: o: rms ratio 1 is above 1e-05"
    assert str(found["blind"].reason).startswith(words)
    assert found["coarse"].outcome is Outcome.WRONG  # beyond ten times the bound of 1e-6
    assert found["rough"].outcome is Outcome.OK
    assert found["rough"].check is not None
    assert found["rough"].check.worst < 1e-6  # the record's error is that of what was timed
    assert found["rough"].provenance["second_rms_ratio"]["o"] == pytest.approx(5e-6, rel=0.1)
    assert found["good"].provenance["second_rms_ratio"] == {"o": 0}


def test_second_inputs_are_judged_in_the_first_launch_only(measure: Measure) -> None:
    later = measure("blind", params={"size": 96}, launch=1)["blind"]
    assert later.outcome is Outcome.OK
    assert "second_rms_ratio" not in later.provenance
    assert measure("blind")["blind"].outcome is Outcome.OK  # it has none of them


def test_a_backend_that_restores_its_state_is_right_in_every_call(measure: Measure) -> None:
    assert measure("in_place")["in_place"].outcome is Outcome.OK


def test_a_backend_that_writes_to_its_inputs_spoils_nobody_else(measure: Measure) -> None:
    found = measure("spoils", "good", "other")
    assert found["good"].outcome is Outcome.OK
    assert found["other"].outcome is Outcome.OK


def test_an_ok_record_holds_samples_check_work_timing_and_provenance(measure: Measure) -> None:
    record = measure("good")["good"]
    assert record.timing is not None
    assert record.timing.timer == "cpu"
    assert record.timing.samples == len(record.samples["device_time_ms"])
    assert record.check is not None
    assert record.check.method == "fp64 doubling"
    assert record.work is not None
    assert record.provenance["version"] == "1.2"
    assert record.telemetry["source"]


def test_rates_follow_from_the_median_and_what_the_call_does(measure: Measure) -> None:
    values = measure("good")["good"].values
    seconds = values["device_time_ms"] / 1e3
    assert values["compute_tflop_s"] == pytest.approx(64 / seconds / 1e12)
    assert values["bandwidth_gb_s"] == pytest.approx(512 / seconds / 1e9)
    assert values["token_throughput_tok_s"] == pytest.approx(64 / seconds)
    assert values["kv_throughput_gb_s"] == pytest.approx(256 / seconds / 1e9)
    assert values["kv_throughput_gbit_s"] == pytest.approx(8 * values["kv_throughput_gb_s"])
    assert values["roofline_share"] == pytest.approx(512 / 10e9 / seconds)
    assert values["rms_ratio"] < 1e-6
    assert "peak_memory_bytes" not in values


def test_a_call_in_which_the_device_s_clock_does_not_tick_has_no_rates(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timeless(entries: Mapping[str, Any], **options: object) -> dict[str, Any]:
        found = measure_interleaved(entries, **options)  # type: ignore[arg-type]
        return {
            name: replace(one, samples=one.samples | {"device_time_ms": (0.0,) * 6})
            for name, one in found.items()
        }

    monkeypatch.setattr("benchx.runner.kernel_timing.measure_interleaved", timeless)
    record = measure("good")["good"]
    assert record.outcome is Outcome.OK
    assert record.values["device_time_ms"] == 0
    assert not {"bandwidth_gb_s", "kv_throughput_gb_s", "roofline_share"} & set(record.values)


@pytest.mark.parametrize("order", ["interleaved", "sequential"])
def test_both_orders_measure_every_backend(measure: Measure, order: str) -> None:
    found = measure("good", "other", "late", order=order, target_error=0.0001, max_samples=100)
    assert {name: record.outcome.value for name, record in found.items()} == {
        "good": "ok",
        "other": "ok",
        "late": "crashed",
    }


def test_every_batch_says_whose_it_is(measure: Measure) -> None:
    found = measure("good", "other")
    timing = [e.points for e in found.events if isinstance(e, Phase) and e.name == "timing"]
    assert {len(points) for points in timing} == {1}
    assert len(set(timing)) == 2


def test_set_up_steps_of_a_point_share_one_time_limit(measure: Measure) -> None:
    found = measure("good", setup_time_limit_s=7.0)
    steps = ("prepare", "first calls", "check", "memory")
    limits = [e.limit_s for e in found.events if isinstance(e, Phase) and e.name in steps]
    assert len(limits) == 4
    assert limits == sorted(limits, reverse=True)
    assert limits[0] <= 7.0


def test_a_reference_that_is_not_finite_is_nobodys_speed(measure: Measure) -> None:
    found = measure("good", "other", params={"reference_ok": False})
    assert {record.outcome for record in found.values()} == {Outcome.CRASHED}
    assert "reference" in (found["good"].reason or "")


def test_a_group_whose_inputs_find_no_room_is_oom_as_a_whole(measure: Measure) -> None:
    found = measure("good", "other", params={"size": 2**46})
    assert [record.outcome for record in found.values()] == 2 * [Outcome.OOM]


def test_a_gpu_timer_on_a_cpu_is_skipped_with_a_way_out(measure: Measure) -> None:
    if probe_device().is_gpu:
        pytest.skip("there is a GPU")
    record = measure("good", timer="events")["good"]
    assert record.outcome is Outcome.SKIPPED
    assert "set measure.timer to auto" in (record.reason or "")


def test_a_point_without_room_beside_the_others_is_measured_alone(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bad_backends

    alive: list[int] = []

    def needs_room(inputs: bad_backends.Vector) -> bad_backends.Run:
        alive.append(1)
        if len(alive) == 1:
            raise MemoryError("no room")
        return bad_backends.GOOD.make(inputs)

    from benchx.ops.base import backends_of

    crowded = bad_backends.Fake("crowded", needs_room)
    monkeypatch.setitem(backends_of("doubling")._entries, "crowded", crowded)
    found = measure("good", "crowded")
    assert found["good"].outcome is Outcome.OK
    assert found["crowded"].outcome is Outcome.OK
    assert len(alive) == 2


def test_the_control_kernel_closes_a_launch_while_its_last_points_hold_their_memory(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    monkeypatch.setattr(ControlKernel, "time_ms", lambda self: looks.append("look") or 1.0)
    released = "benchx.runner.kernel_level.release_memory"
    monkeypatch.setattr(released, lambda device: looks.append("released"))
    groups = tuple(
        Group((Point(kind="kernel", subject="doubling", backend="good",
                     params={"size": size, "reference_ok": True}),))
        for size in (64, 65)
    )  # fmt: skip
    spec = LaunchSpec(run_id="r", launch=0, worker=0, groups=groups, settings={0: SETTINGS})
    session = Session(spec=spec, device=probe_device(), ceilings=CEILINGS, channel=Collector())
    assert work_through(session) == "complete"
    assert looks == ["look", "released", "look", "released"]


@pytest.mark.parametrize(
    ("telemetry", "outcome", "notes"),
    [
        ({"hw_throttled": True, "hw_throttled_share": 1.0}, Outcome.THROTTLED, None),
        ({"hw_throttled": True, "hw_throttled_share": 0.5}, Outcome.THROTTLED, None),
        ({"hw_throttled": True, "hw_throttled_share": 0.4}, Outcome.OK, "throttled"),
        ({"hw_throttled": None, "hw_throttled_share": None}, Outcome.OK, None),
        ({"hw_throttled": False, "hw_throttled_share": 0.0}, Outcome.OK, None),
    ],
)
def test_a_device_that_throttled_half_the_time_gives_no_figure_and_one_that_did_less_a_note(
    measure: Measure,
    monkeypatch: pytest.MonkeyPatch,
    telemetry: dict[str, object],
    outcome: Outcome,
    notes: str | None,
) -> None:
    base = {"throttle_reasons": ["hw_slowdown"]}
    of = "benchx.runner.kernel_timing.Telemetry.of"
    monkeypatch.setattr(of, lambda self, owner: base | telemetry)
    record = measure("good")["good"]
    assert record.outcome is outcome
    if record.timing is not None:
        assert ("throttled" in record.timing.notes) is (notes is not None)


def test_what_throttled_one_backend_is_not_another_s(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readings are those taken while the backend ran, though all take turns."""

    class Card:
        name, interval_s = "card", 0.0002

        def __init__(self, device: Device) -> None:
            del device

        def begin(self) -> None:
            pass

        def read(self) -> Reading:
            return Reading(throttle=frozenset({"hw_slowdown"} if running[-1] == "good" else ()))

    running = [""]
    announced = AnnouncingTimer.sample

    def sample(self: AnnouncingTimer, calls: Any, count: int, **rest: Any) -> Any:  # noqa: ANN401
        entry = self._entries[id(calls)]
        running.append(entry.point.backend)
        return announced(self, calls, count, **rest)

    monkeypatch.setattr(AnnouncingTimer, "sample", sample)
    monkeypatch.setitem(_SOURCES, "cpu", Card)
    found = measure("good", "other", min_samples=20, max_time_s=0.5, target_error=1e-9)
    assert found["good"].outcome is Outcome.THROTTLED
    assert found["other"].outcome is Outcome.OK
    assert found["other"].telemetry["readings_of"] == "own"


@pytest.fixture
def measured_again(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Replaces measuring ceilings by the true ones; remembers each time."""
    times: list[bool] = []

    def ceilings(device: Device, *, again: bool) -> Ceilings:
        times.append(again)
        return Ceilings(**CEILINGS, matmul_dtype="x", measured_at="now", device_name="x")

    monkeypatch.setattr("benchx.runner.session.ceilings", ceilings)
    return times


TOO_LOW = {"copy_gb_s": 1e-9, "matmul_tflop_s": 1e-9}


def test_points_above_the_roofline_make_the_ceilings_be_measured_again_once(
    measure: Measure, measured_again: list[bool]
) -> None:
    found = measure("good", "other", ceilings=TOO_LOW, cache="cold")
    assert measured_again == [True]
    assert sum(isinstance(event, CeilingsAgain) for event in found.events) == 1
    for record in found.values():
        assert record.values["roofline_share"] < 1
        assert record.timing is not None
        assert "above_roofline" not in record.timing.notes


def test_a_warm_cache_may_beat_the_ceilings_which_is_noted(
    measure: Measure, measured_again: list[bool]
) -> None:
    record = measure("good", ceilings=TOO_LOW, cache="warm")["good"]
    assert measured_again == []
    assert record.values["roofline_share"] > 1
    assert record.timing is not None
    assert "above_roofline" in record.timing.notes


@pytest.mark.parametrize(
    ("ceilings", "notes"),
    [
        ({"copy_gb_s": 1e-3, "matmul_tflop_s": 1e9}, {"above_roofline"}),
        ({"copy_gb_s": 1e9, "matmul_tflop_s": 1e-9}, {"above_compute_roofline"}),
        ({"copy_gb_s": 1e-3, "matmul_tflop_s": 1e-9}, {"above_roofline", "above_compute_roofline"}),
    ],
)
def test_only_bytes_that_came_too_soon_are_blamed_on_a_cache(
    measure: Measure, ceilings: dict[str, float], notes: set[str]
) -> None:
    record = measure("good", ceilings=ceilings, cache="warm", params={"size": 4096})["good"]
    assert record.timing is not None
    assert {note for note in record.timing.notes if note.startswith("above")} == notes


@pytest.mark.parametrize("is_long", [True, False])
def test_a_long_call_is_not_made_again_for_what_its_warm_up_has_told(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    told: list[Mapping[str, float]] = []
    for_memory: list[object] = []

    def interleaved(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - passed on as it is
        told.append(options["long_calls_ms"])
        return measure_interleaved(*arguments, **options)

    monkeypatch.setattr("benchx.measure.warmup.LONG_CALL_S", 0.0 if is_long else 60.0)
    monkeypatch.setattr("benchx.runner.kernel_timing.measure_interleaved", interleaved)
    monkeypatch.setattr("benchx.runner.kernel_setup.peak_extra_bytes",
                        lambda run, device: for_memory.append(run))  # fmt: skip
    assert measure("good")["good"].outcome is Outcome.OK
    assert [len(times) for times in told] == [int(is_long)]
    assert len(for_memory) == int(not is_long)


def test_equal_seeds_give_equal_inputs_in_every_launch(measure: Measure) -> None:
    errors = [measure("wrong", launch=launch)["wrong"].check for launch in (0, 1)]
    assert errors[0] == errors[1]
