"""Backends take turns; each stops by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pytest

from benchx.core.call import PreparedCall
from benchx.measure.interleave import EntryFailed, measure_interleaved
from benchx.measure.sampling import SampleBatch, Timer
from benchx.measure.stopping import StoppingRule

RULE = StoppingRule(target_error=0.01, max_time_s=1000, min_samples=20, max_samples=60)
Calls = Mapping[str, list[PreparedCall]]


class Clock(Protocol):
    """The fake clock of conftest.py."""

    def s(self) -> float: ...


class FakeTimer(Timer, Protocol):
    """The scripted timer of conftest.py; `turns` holds (id of the first call, samples)."""

    turns: list[tuple[int, int]]


MakeTimer = Callable[..., FakeTimer]


def _entries(*names: str) -> dict[str, list[PreparedCall]]:
    return {name: [PreparedCall(run=dict)] for name in names}


def _scripts(entries: Calls, scripts: Mapping[str, list[float]]) -> dict[int, list[float]]:
    return {id(entries[name][0]): script for name, script in scripts.items()}


def _order(timer: FakeTimer, entries: Calls) -> list[str]:
    names = {id(calls[0]): name for name, calls in entries.items()}
    return [names[key] for key, _ in timer.turns]


def test_entries_alternate_instead_of_running_one_after_the_other(
    fake_timer: MakeTimer, clock: Clock
) -> None:
    entries = _entries("a", "b")
    timer = fake_timer(_scripts(entries, {"a": [30.0], "b": [30.0]}))
    measure_interleaved(entries, timer=timer, rule=RULE, seed=1, clock_s=clock.s)
    order = _order(timer, entries)
    rounds = [set(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert len(rounds) > 5
    assert all(names == {"a", "b"} for names in rounds)


def test_the_order_is_reshuffled_each_round_and_follows_from_the_seed(
    fake_timer: MakeTimer, clock: Clock
) -> None:
    orders = []
    for seed in (1, 1, 2):
        entries = _entries("a", "b", "c")
        timer = fake_timer(_scripts(entries, {name: [30.0] for name in "abc"}))
        measure_interleaved(entries, timer=timer, rule=RULE, seed=seed, clock_s=clock.s)
        orders.append(_order(timer, entries))
    assert orders[0] == orders[1] != orders[2]
    rounds = {tuple(orders[0][i : i + 3]) for i in range(0, len(orders[0]), 3)}
    assert len(rounds) > 1


def test_each_entry_stops_by_its_own_rule(fake_timer: MakeTimer, clock: Clock) -> None:
    entries = _entries("steady", "wild")
    timer = fake_timer(_scripts(entries, {"steady": [1.0], "wild": [1.0, 3.0]}))
    measured = measure_interleaved(entries, timer=timer, rule=RULE, seed=0, clock_s=clock.s)
    assert measured["steady"].stop == "target_error"
    assert measured["wild"].stop == "max_samples"
    assert len(measured["wild"].samples["device_time_ms"]) == RULE.max_samples
    assert len(measured["steady"].samples["device_time_ms"]) < RULE.max_samples


def test_time_spent_on_a_neighbour_does_not_count(fake_timer: MakeTimer, clock: Clock) -> None:
    entries = _entries("slow", "fast")
    rule = StoppingRule(target_error=0, max_time_s=1.0, max_samples=30)
    timer = fake_timer(_scripts(entries, {"slow": [400.0], "fast": [1.0]}))
    measured = measure_interleaved(entries, timer=timer, rule=rule, seed=0, clock_s=clock.s)
    assert measured["slow"].stop == "max_time"
    assert measured["fast"].stop == "max_samples"


def test_an_entry_slower_than_the_time_limit_still_gets_one_sample(
    fake_timer: MakeTimer, clock: Clock
) -> None:
    entries = _entries("glacial")
    rule = StoppingRule(max_time_s=1.0)
    timer = fake_timer(_scripts(entries, {"glacial": [60_000.0]}))
    measured = measure_interleaved(entries, timer=timer, rule=rule, seed=0, clock_s=clock.s)
    assert measured["glacial"].samples["device_time_ms"] == (60_000.0,)


def test_samples_that_may_hold_launch_gaps_make_the_entry_host_bound(
    fake_timer: MakeTimer, clock: Clock
) -> None:
    entries = _entries("a")
    timer = fake_timer(_scripts(entries, {"a": [1.0]}), late=1, notes=("warm_l2",))
    measured = measure_interleaved(entries, timer=timer, rule=RULE, seed=0, clock_s=clock.s)
    assert measured["a"].notes == ("host_bound", "warm_l2")


@pytest.mark.parametrize(("host_share", "notes"), [(1.5, ("slow_submission",)), (0.5, ())])
def test_a_host_slower_than_the_device_is_said_also_without_launch_gaps(
    fake_timer: MakeTimer, clock: Clock, host_share: float, notes: tuple[str, ...]
) -> None:
    entries = _entries("a")
    timer = fake_timer(_scripts(entries, {"a": [1.0]}), host_share=host_share)
    measured = measure_interleaved(entries, timer=timer, rule=RULE, seed=0, clock_s=clock.s)
    assert measured["a"].notes == notes


def test_call_time_is_sampled_beside_device_time(fake_timer: MakeTimer, clock: Clock) -> None:
    entries = _entries("a")
    timer = fake_timer(_scripts(entries, {"a": [1.0, 2.0]}))
    measured = measure_interleaved(entries, timer=timer, rule=RULE, seed=0, clock_s=clock.s)
    assert len(measured["a"].samples["call_time_ms"]) == 60 // 5 + 1


def test_on_a_synchronous_timer_call_time_is_the_same_samples(
    fake_timer: MakeTimer, clock: Clock
) -> None:
    entries = _entries("a")
    timer = fake_timer(_scripts(entries, {"a": [1.0]}), synchronous=True)
    samples = measure_interleaved(entries, timer=timer, rule=RULE, seed=0, clock_s=clock.s)[
        "a"
    ].samples
    assert samples["call_time_ms"] == samples["device_time_ms"]


def test_an_entry_that_raises_is_named_with_its_cause(fake_timer: MakeTimer, clock: Clock) -> None:
    class Broken:
        name, synchronous = "broken", True

        def sample(self, calls: object, count: int, *, opened: bool = False) -> SampleBatch:
            raise MemoryError("no room\nat all")

    with pytest.raises(EntryFailed, match=r"bad raised MemoryError: no room$") as caught:
        measure_interleaved(_entries("bad"), timer=Broken(), rule=RULE, seed=0)
    assert caught.value.entry == "bad"
    assert isinstance(caught.value.__cause__, MemoryError)


def test_progress_is_told_after_every_batch(fake_timer: MakeTimer, clock: Clock) -> None:
    entries = _entries("a")
    timer = fake_timer(_scripts(entries, {"a": [1.0]}))
    seen: list[tuple[str, int]] = []
    tell: Callable[[str, int], None] = lambda name, n: seen.append((name, n))  # noqa: E731
    measure_interleaved(entries, timer=timer, rule=RULE, seed=0, on_batch=tell, clock_s=clock.s)
    assert seen[0] == ("a", 1)
    assert [n for _, n in seen] == sorted({n for _, n in seen})
