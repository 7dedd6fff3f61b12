"""A vocabulary of two made-up operators, and ways to load a text and to read its refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchx.core.axes import AxisSpec, Params
from benchx.core.errors import ScenarioError
from benchx.scenario import OpWords, Scenario, Vocabulary, expand, load


def _problem(params: Params) -> str | None:
    if params["heads"] == 13:
        return "heads of 13 can't be split"
    return None


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    mix = OpWords(
        axes={
            "heads": AxisSpec(type="int", doc="heads per device", minimum=1),
            "seqlens": AxisSpec(type="lengths", doc="lengths of the sequences", minimum=1),
            "width": AxisSpec(type="int", doc="numbers per head", default=128, minimum=1),
            "dtype": AxisSpec(
                type="str", doc="type of the inputs", default="bf16", choices=("bf16", "fp32")
            ),
            "bound": AxisSpec(type="float", doc="lowest decay", default=-5.0),
            "state": AxisSpec(type="bool", doc="whether a state comes in", default=True),
        },
        backends=("slow", "fast", "other"),
        problem=_problem,
    )
    step = OpWords(
        axes={"batch": AxisSpec(type="int", doc="sequences", minimum=1)},
        backends=("slow",),
        problem=lambda _params: None,
    )
    return Vocabulary(ops={"mix": mix, "step": step})


BASE = """\
schema: 1
kind: kernel
op: mix
backends: [slow, fast]
fixed: {width: 64}
axes:
  heads: [4, 8]
  seqlens: [64, 2x32]
"""


@pytest.fixture
def base() -> str:
    """Eight points: two backends, two numbers of heads, two batches."""
    return BASE


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write text or bytes to a scenario file of a folder of its own."""

    def write(content: str | bytes, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def loaded(write: Callable[..., Path]) -> Callable[..., Scenario]:
    """Load a text, with `--set` texts."""

    def loaded(content: str | bytes, *overrides: str) -> Scenario:
        return load(write(content), overrides=overrides)

    return loaded


@pytest.fixture
def refusal(
    loaded: Callable[..., Scenario], vocabulary: Vocabulary, tmp_path: Path
) -> Callable[..., str]:
    """The one line that loading and expanding a text ends with, the folder left out."""

    def refusal(content: str | bytes, *overrides: str) -> str:
        with pytest.raises(ScenarioError) as caught:
            expand(loaded(content, *overrides), vocabulary)
        message = str(caught.value).replace(f"{tmp_path}/", "")
        assert "\n" not in message
        return message

    return refusal
