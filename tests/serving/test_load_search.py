"""The search finds the limit that is there, and stops."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchx.serving.load_search import SearchPlan, search_highest


@given(st.integers(1, 1000), st.integers(1, 2000))
def test_a_whole_limit_is_found_within_the_precision(limit: int, high: int) -> None:
    plan = SearchPlan(low=1, high=high, whole=True, tries=30)
    found = search_highest(plan, lambda load: load <= limit)
    assert found.passing is not None
    assert found.passing <= limit
    if limit >= high:
        assert found.passing == high
    else:
        assert limit - found.passing < max(1.0, 0.05 * found.passing)
    assert all(load == int(load) for load in found.tried)
    assert len(found.tried) <= 24


@given(st.floats(0.01, 1000), st.floats(0.001, 0.01))
def test_a_rate_is_found_within_the_precision(limit: float, low: float) -> None:
    plan = SearchPlan(low=low, high=1e4, whole=False, tries=60)
    found = search_highest(plan, lambda load: load <= limit)
    assert found.passing is not None
    assert found.failing is not None
    assert found.passing <= limit < found.failing <= 1.05 * found.passing


def test_if_the_lowest_fails_nothing_else_is_tried() -> None:
    found = search_highest(SearchPlan(low=1, high=64, whole=True), lambda _: False)
    assert (found.passing, found.failing, found.tried) == (None, 1, (1,))


def test_no_load_is_tried_twice_and_no_more_than_allowed() -> None:
    plan = SearchPlan(low=1, high=10_000, whole=True, tries=6)
    found = search_highest(plan, lambda load: load < 700)
    assert len(found.tried) == len(set(found.tried)) == 6
    assert not found.complete


def test_a_load_that_can_not_be_judged_ends_the_search_and_is_no_answer() -> None:
    plan = SearchPlan(low=1, high=64, whole=True)
    found = search_highest(plan, lambda load: None if load > 4 else True)
    assert (found.passing, found.failing, found.tried) == (4, None, (1, 2, 4))
    assert not found.complete


def test_a_search_that_knows_its_limit_is_complete() -> None:
    for limit in (0, 5, 99):
        plan = SearchPlan(low=1, high=64, whole=True)
        assert search_highest(plan, lambda load, most=limit: load <= most).complete
