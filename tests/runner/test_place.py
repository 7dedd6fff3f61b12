"""Work of the host on a machine with a GPU: timed by the host's clock, whatever the GPU offers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import benchx.ops.catalog  # noqa: F401 - registers
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import LaunchRecord
from benchx.measure.cpu_timer import CpuTimer
from benchx.measure.device import host_device
from benchx.ops.base import OPERATORS, HostShare, backends_of
from benchx.ops.kv_copy import BOTH_WAYS, LOADS, STORES
from benchx.runner import place as places
from benchx.runner.events import Event, Recorded
from benchx.runner.kernel_level import KernelLevel
from benchx.runner.place import place_of
from benchx.runner.session import Session
from benchx.runner.spec import Group, LaunchSpec

MIB = 2**20
GPU = Device(
    vendor="nvidia", torch_type="cuda", name="Test GPU", index=0, count=1, arch="sm_90",
    memory_bytes=2**36, l2_bytes=2**26, compute_units=132,
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "cache": "cold", "timer": "auto", "order": "interleaved", "target_error": 0.5,
    "min_samples": 6, "max_samples": 20, "max_time_s": 0.2, "setup_time_limit_s": 10.0,
    "seed": 0, "max_rms_ratio": None,
}  # fmt: skip
HOST_ROUTES = ("memory", "file_read", "file_read_direct", "file_write", "file_write_direct",
               "loopback")  # fmt: skip
FASTEST_GB_S = 2000.0
"""More than any host's memory moves; far less than 64 MiB in the 1.25 us that events once read."""


def point_of(backend: str = "blocks", **params: object) -> Point:
    wanted = {"route": "memory", "block_bytes": MIB, "total_bytes": 16 * MIB, "folder": "",
              "layout": "contiguous", "pinned": True} | params  # fmt: skip
    return Point(kind="kernel", subject="kv_copy", backend=backend, params=wanted)


def measured(*points: Point, **settings: object) -> list[LaunchRecord]:
    """Records of points that a machine with a GPU measures as one group."""
    events: list[Event] = []

    class Channel:
        def send(self, event: Event) -> None:
            events.append(event)

    spec = LaunchSpec(run_id="r", launch=0, worker=0, groups=(Group(points),),
                      settings={0: SETTINGS | settings})  # fmt: skip
    ceilings = {"copy_gb_s": 4000.0, "matmul_tflop_s": 800.0}
    session = Session(spec=spec, device=GPU, ceilings=ceilings, channel=Channel())
    session.drift.look = partial(pytest.fail, "the GPU's control kernel says nothing of the host")
    KernelLevel().measure(spec.groups[0], session)
    return [event.record for event in events if isinstance(event, Recorded)]


@pytest.mark.parametrize("route", HOST_ROUTES)
def test_a_route_of_the_host_takes_the_time_of_its_bytes_beside_a_gpu_too(route: str) -> None:
    (record,) = measured(point_of(route=route))
    if record.outcome is Outcome.UNSUPPORTED:
        assert route.endswith("direct")
        pytest.skip(record.reason or "")
    assert record.outcome is Outcome.OK
    assert record.timing is not None
    assert record.timing.timer == "cpu"
    assert "on_host" in record.timing.notes
    assert record.values["device_time_ms"] > 16 * MIB / FASTEST_GB_S / 1e6
    assert record.values["device_time_ms"] == record.values["call_time_ms"]
    assert record.telemetry["source"] in ("psutil", "none")
    assert not {"roofline_share", "peak_memory_bytes"} & set(record.values)
    assert "control_drift" not in record.telemetry


def test_both_backends_of_a_route_of_the_host_share_one_clock() -> None:
    found = measured(*(point_of(name, layout="gather") for name in ("blocks", "packed")))
    assert [r.timing.timer for r in found if r.timing] == ["cpu", "cpu"]


SHARES: dict[HostShare, list[dict[str, object]]] = {
    "all": [{"route": route} for route in HOST_ROUTES],
    "part": [
        *({"route": r, "pinned": False} for r in ("host_to_device", "device_to_host", BOTH_WAYS)),
        {"route": "host_to_device", "layout": "gather"},
        {"route": "device_to_host", "layout": "scatter"},
    ],
    "none": [
        *({"route": r} for r in ("host_to_device", "device_to_host", "device_to_device")),
        {"route": "host_to_device", "layout": "scatter"},
        {"route": "device_to_host", "layout": "gather"},
        {"route": "device_to_device", "pinned": False},
        {"route": BOTH_WAYS, "layout": "gather"},
    ],
}
SHARED = [(share, case) for share, cases in SHARES.items() for case in cases]


@pytest.mark.parametrize(("share", "params"), SHARED, ids=str)
def test_what_the_host_copies_or_packs_itself_is_its_own(
    share: HostShare, params: dict[str, object]
) -> None:
    place = place_of(OPERATORS.get("kv_copy"), point_of(**params).params, GPU)
    assert place.host_share == share
    assert place.device == (host_device() if share == "all" else GPU)


def test_every_route_has_a_share() -> None:
    told = {case["route"] for _, case in SHARED}
    assert told == {*LOADS, *STORES, BOTH_WAYS}


@pytest.mark.parametrize("route", ["host_to_device", "device_to_host", "file_read"])
def test_no_ceiling_of_a_gpu_bounds_what_crosses_to_its_host(route: str) -> None:
    copy, params = OPERATORS.get("kv_copy"), point_of(route=route).params
    assert not place_of(copy, params, GPU).within
    assert place_of(copy, params, host_device()).within
    assert place_of(OPERATORS.get("kda_prefill"), {}, GPU).within


def test_without_a_gpu_there_is_one_clock_and_nothing_to_note() -> None:
    for _, params in SHARED:
        place = place_of(OPERATORS.get("kv_copy"), point_of(**params).params, host_device())
        assert (place.host_share, place.notes) == ("none", ())


def test_an_operator_that_says_nothing_is_the_device_s() -> None:
    place = place_of(OPERATORS.get("kda_prefill"), {}, GPU)
    assert (place.device, place.host_share) == (GPU, "none")


DEVICE_TIMERS = ("events", "events_spin", "graph")
NONE, PART, ALL = {"route": "host_to_device"}, {"route": "host_to_device", "pinned": False}, {}


@pytest.mark.parametrize(
    ("timer", "params", "told"),
    [
        *((name, NONE, None) for name in ("auto", *DEVICE_TIMERS)),
        *((name, case, None) for name in ("auto", "cpu") for case in (PART, ALL)),
        ("cpu", NONE, "timer 'cpu' times CPU work only, this is Test GPU"),
        *((name, PART, "but the host does a part of this work") for name in DEVICE_TIMERS),
        *((name, ALL, "but the host does this work") for name in DEVICE_TIMERS),
    ],
)  # fmt: skip
def test_a_timer_that_sees_only_one_side_is_refused_with_a_way_out(
    timer: str, params: dict[str, object], told: str | None
) -> None:
    why = KernelLevel().unavailable(point_of(**params), SETTINGS | {"timer": timer}, GPU)
    if told is None:
        assert why is None
    else:
        assert why is not None
        assert why.outcome is Outcome.SKIPPED
        assert told in why.reason
        assert "set measure.timer to auto" in why.reason


def test_a_refused_timer_gives_no_figure() -> None:
    (record,) = measured(point_of(), timer="events_spin")
    assert record.outcome is Outcome.SKIPPED
    assert not record.values


def test_what_the_host_does_a_part_of_begins_and_ends_on_an_idle_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    monkeypatch.setattr(places, "synchronize", lambda device: log.append(device.name))
    place = place_of(OPERATORS.get("kv_copy"), point_of(**PART).params, GPU)
    timer = place.timer("auto", None, copy_bytes=1)
    call = PreparedCall(run=lambda: log.append("run") or {}, reset=lambda: log.append("reset"))
    timer.sample([call], 2)
    assert isinstance(timer, CpuTimer)
    assert log == ["reset", "Test GPU", "run", "Test GPU"] * 2
    assert place.notes == ("host_takes_part",)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "params",
    [{"route": "memory"}, {"route": "file_read"}, {"route": "host_to_device", "pinned": False},
     {"route": "device_to_host", "layout": "scatter"}],
    ids=str,
)  # fmt: skip
def test_on_a_real_gpu_no_copy_by_the_host_is_faster_than_its_memory(
    gpu: Device, params: dict[str, object]
) -> None:
    point = point_of(total_bytes=64 * MIB, **params)
    place = place_of(OPERATORS.get("kv_copy"), point.params, gpu)
    inputs = OPERATORS.get("kv_copy").make_inputs(
        point.params, seed=0, device=torch.device(place.device.torch_device)
    )
    call = backends_of("kv_copy").get("blocks").prepare(inputs)
    call.run()
    times_ms = place.timer("auto", None, copy_bytes=1).sample([call], 5).device_time_ms
    assert min(times_ms) > 64 * MIB / FASTEST_GB_S / 1e6
