"""Keeping up: a server as fast as what is offered, and servers that fall behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.serving.keeping_up import KeepingUp, keeping_up
from benchx.serving.load_schedule import OpenLoop, starts_s
from benchx.serving.request import RequestOutcome, RequestResult

S = 1_000_000_000


def served(starts: Sequence[float], *, rate: float, takes_s: float = 0.5) -> KeepingUp:
    """A server that starts an answer every 1 / rate s, first come, first served."""
    free, results = 0.0, []
    for index, start in enumerate(starts):
        free = max(free, start) + 1 / rate
        first_ns = int((free + takes_s / 2) * S)
        results.append(
            RequestResult(
                index=index,
                outcome=RequestOutcome.OK,
                max_tokens=2,
                intended_ns=int(start * S),
                sent_ns=int(start * S),
                first_token_ns=first_ns,
                last_token_ns=int((free + takes_s) * S),
                end_ns=int((free + takes_s) * S),
            )
        )
    return keeping_up(results, starts, {index: index for index in range(len(starts))})


@given(seed=st.integers(0, 100), load=st.floats(0.1, 0.6))
def test_a_server_with_capacity_to_spare_keeps_up(seed: int, load: float) -> None:
    starts = starts_s(OpenLoop(rate_req_s=100 * load), 400, seed)
    assert served(starts, rate=100).problem is None


@given(seed=st.integers(0, 100), load=st.floats(1.3, 50))
def test_a_server_that_is_offered_too_much_does_not(seed: int, load: float) -> None:
    starts = starts_s(OpenLoop(rate_req_s=100 * load), 400, seed)
    assert served(starts, rate=100).problem is not None


def test_the_figures_are_those_of_the_fluid_model() -> None:
    found = served([index / 50 for index in range(200)], rate=40)
    assert found.offered_rate == pytest.approx(50)
    assert found.achieved_share == pytest.approx(0.8, rel=0.02)
    assert found.wait_growth == pytest.approx(50 / 40 - 1, rel=0.02)


def test_a_growing_wait_is_seen_where_completions_are_not_yet_slower() -> None:
    behind = KeepingUp(offered_rate=10, achieved_share=1.0, wait_growth=0.2)
    assert "the wait grows by 0.2 s in a second" in str(behind.problem)


def test_too_few_requests_tell_nothing() -> None:
    found = served([0.0, 1.0, 2.0], rate=10)
    assert found.problem is None
    assert not found.is_known
    assert found.values() == {"offered_rate_req_s": 1.0}


def test_what_was_never_sent_was_offered_all_the_same() -> None:
    starts = [index / 50 for index in range(200)]
    sent = served(starts[:100], rate=50)
    assert sent.achieved_share == pytest.approx(1.0)
    results = [
        RequestResult(
            index=index,
            outcome=RequestOutcome.OK,
            max_tokens=1,
            intended_ns=int(start * S),
            sent_ns=int(start * S),
            end_ns=int((2 * start + 1) * S),
        )
        for index, start in enumerate(starts[:100])
    ]
    assert keeping_up(results, starts, {i: i for i in range(100)}).achieved_share == pytest.approx(
        0.5, rel=0.02
    )
