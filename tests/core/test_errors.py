"""Errors say what, where and what next, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchx.core import errors
from benchx.core.errors import (
    BenchxError,
    ExitCode,
    Location,
    ScenarioError,
    nearest_word,
    unknown_word,
)


def test_a_scenario_error_names_file_line_key_value_and_the_nearest_word() -> None:
    error = ScenarioError(
        Location(Path("mla.yaml"), 14),
        key="backends[0]",
        problem="unknown backend 'sdqa'",
        expected="one of absorbed, sdpa",
        nearest="sdpa",
    )
    assert str(error) == (
        "mla.yaml:14: backends[0]: unknown backend 'sdqa'; "
        "expected one of absorbed, sdpa; did you mean 'sdpa'?"
    )


def test_a_scenario_error_about_the_whole_file_names_no_line_and_no_key() -> None:
    assert str(ScenarioError(Location(Path("a.yaml")), problem="is empty")) == "a.yaml: is empty"


def test_a_hint_follows_the_message_in_parentheses() -> None:
    assert str(BenchxError("no such run", hint="list results/")) == "no such run (list results/)"


def test_every_error_is_one_line_without_a_trailing_stop() -> None:
    error = ScenarioError("--set a=1", problem="no such path", expected="a known key", hint="plan")
    assert "\n" not in str(error)


def test_what_a_user_got_wrong_and_what_failed_to_run_end_differently() -> None:
    codes = {
        kind.__name__: kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, BenchxError)
    }
    assert codes == {
        "BenchxError": ExitCode.USAGE,
        "UsageError": ExitCode.USAGE,
        "ScenarioError": ExitCode.USAGE,
        "RunFailed": ExitCode.FAILED,
        "StoreError": ExitCode.FAILED,
        "NotComparable": ExitCode.NOT_COMPARABLE,
    }


def test_exit_codes_are_those_promised_to_scripts() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "REGRESSION": 1,
        "USAGE": 2,
        "NOT_COMPARABLE": 3,
        "FAILED": 4,
        "AMBIGUOUS": 5,
        "INTERRUPTED": 130,
        "TERMINATED": 143,
    }


@pytest.mark.parametrize(
    ("word", "nearest"), [("recurent", "recurrent"), ("zzz", None), ("", None)]
)
def test_the_nearest_word_is_offered_only_when_it_is_near(word: str, nearest: str | None) -> None:
    assert nearest_word(word, ["recurrent", "chunked"]) == nearest


def test_an_unknown_word_is_answered_with_the_nearest_one_or_with_all() -> None:
    known = ("recurrent", "chunked")
    near = unknown_word("backend", "recurent", known, hint="benchx list backends")
    assert near.message == "unknown backend 'recurent'; did you mean 'recurrent'?"
    assert near.hint == "benchx list backends"
    far = unknown_word("backend", "zzz", iter(known))
    assert str(far) == "unknown backend 'zzz'; known: recurrent, chunked"
