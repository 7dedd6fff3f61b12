"""Complaints of the schema in our words, whatever pydantic's message looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field

from benchx.core.errors import Location, ScenarioError
from benchx.scenario.reader import read_yaml
from benchx.scenario.schema import Settings
from benchx.scenario.validation import validated


def _refused(value: str) -> str:
    raise ValueError(f"{{{value}}} is in {{braces}} {{0}}")


class Dated(Settings):
    """One constraint with braces in its pattern, one whose message is braces."""

    date: Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}$")] = "2026-07"
    word: Annotated[str, AfterValidator(_refused)] = "x"


def refusal(text: str, model: type[Any] = Dated) -> str:
    with pytest.raises(ScenarioError) as caught:
        validated(model, read_yaml(text, Location(Path("some.yaml"))))
    return str(caught.value)


def test_a_pattern_with_braces_is_named_and_not_filled_in() -> None:
    text = refusal('date: "July"')
    assert "some.yaml:1" in text
    assert "text that matches ^[0-9]{4}-[0-9]{2}$" in text


def test_a_message_with_braces_that_we_have_no_words_for_is_printed_as_it_is() -> None:
    assert "{y} is in {braces} {0}" in refusal("word: y")
