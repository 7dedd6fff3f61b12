"""A worker's session: its ceilings and its cold cache."""

from __future__ import annotations

import pytest

from benchx.core.point import Point
from benchx.measure.ceilings import Ceilings
from benchx.runner import events
from benchx.runner.session import Session
from benchx.runner.spec import LaunchSpec
from benchx.runner.worker import open_session

POINT = Point(kind="kernel", subject="op", backend="a", params={})


class Collector:
    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def send(self, event: events.Event) -> None:
        self.events.append(event)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Replaces measuring the ceilings; holds whether each time it was to be done again."""
    again_each_time: list[bool] = []

    def ceilings(device: object, *, again: bool) -> Ceilings:
        again_each_time.append(again)
        return Ceilings(
            copy_gb_s=float(len(again_each_time)),
            matmul_tflop_s=1.0,
            matmul_dtype="float32",
            measured_at="now",
            device_name="x",
        )

    monkeypatch.setattr("benchx.measure.ceilings.ceilings", ceilings)
    monkeypatch.setattr("benchx.runner.session.ceilings", ceilings)
    monkeypatch.setattr("benchx.runner.worker.limit_memory", lambda limit_bytes: None)
    return again_each_time


def _open(worker: int) -> tuple[Session, Collector]:
    channel = Collector()
    spec = LaunchSpec(run_id="r", launch=0, worker=worker, groups=(), settings={})
    return open_session(spec, channel), channel


def test_only_the_first_worker_of_a_run_measures_the_ceilings_again(asked: list[bool]) -> None:
    for worker in range(3):
        _open(worker)
    assert asked == [True, False, False]


def test_ceilings_are_doubted_once_and_the_parent_is_told(asked: list[bool]) -> None:
    session, channel = _open(1)
    session.doubt_ceilings(POINT)
    session.doubt_ceilings(POINT)
    assert asked == [False, True]
    assert session.ceilings["copy_gb_s"] == 2.0
    told = [event for event in channel.events if isinstance(event, events.Ceilings)]
    assert [event.ceilings for event in told] == [session.ceilings]


def test_ceilings_that_can_not_be_measured_again_stay(
    asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(device: object, *, again: bool) -> Ceilings:
        raise MemoryError("no room for the copy")

    session, _ = _open(1)
    monkeypatch.setattr("benchx.runner.session.ceilings", no_room)
    session.doubt_ceilings(POINT)
    assert session.ceilings["copy_gb_s"] == 1.0
    assert session.poisoned is None


def test_all_groups_share_one_cold_cache(asked: list[bool]) -> None:
    session, _ = _open(0)
    assert session.cold_cache(session.device) is session.cold_cache(session.device)
