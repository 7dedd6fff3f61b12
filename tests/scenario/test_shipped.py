"""The scenarios that ship: they load, they expand, and they say what they are for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchx.ops.model_vocabulary import model_words
from benchx.ops.vocabulary import kernel_words
from benchx.scenario import Vocabulary, expand, load, shipped

NAMES = sorted(shipped())
README = Path(__file__).parents[2] / "scenarios" / "README.md"


@pytest.fixture(scope="module")
def registered() -> Vocabulary:
    return Vocabulary(ops=kernel_words(), models=model_words())


def rows(vocabulary: Vocabulary, name: str, *axes: str) -> set[tuple[object, ...]]:
    points = expand(load(name), vocabulary)
    return {tuple(point.params[axis] for axis in axes) for point in points}


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_scenario_expands_with_what_is_registered(
    name: str, registered: Vocabulary
) -> None:
    scenario = load(name)
    assert scenario.name == name
    assert expand(scenario, registered)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_scenario_begins_with_question_level_and_hardware(name: str) -> None:
    text = shipped()[name].read_text()
    level = r"(kernel|model|serving|kernel, model and serving)"
    assert re.match(rf"# Question: .+\?\n# Level: {level}\. Hardware: .+\.\n", text)
    assert load(name).title.endswith("?")


def test_the_index_lists_every_shipped_scenario_once() -> None:
    listed = re.findall(r"^\| \[`([\w-]+)`\]\(([\w-]+)\.yaml\)", README.read_text(), re.MULTILINE)
    assert sorted(listed) == [(name, name) for name in NAMES]


def test_the_shipped_scenarios_are_those_that_the_design_names() -> None:
    assert {
        "ancestry", "kda-decode", "kda-prefill", "mla-decode", "mla-prefill", "quickstart", "smoke",
    } <= set(NAMES)  # fmt: skip


def test_kda_prefill_has_the_sixteen_reference_rows(registered: Vocabulary) -> None:
    mixed = "1300+547+2048+963+271+3063"
    assert rows(registered, "kda-prefill", "seqlens", "heads") == {
        *((seqlens, heads) for seqlens in ("8192", mixed, "8x1024") for heads in (96, 64, 32, 12)),
        ("65536", 32), ("65536", 12), ("131072", 96), ("262144", 12),
    }  # fmt: skip


def test_kda_decode_has_the_eight_reference_rows(registered: Vocabulary) -> None:
    assert rows(registered, "kda-decode", "batch", "heads") == {
        *((batch, 32) for batch in (1, 8, 32, 64, 128, 256)), (64, 96), (256, 96),
    }  # fmt: skip


def test_mla_decode_has_the_eight_reference_rows(registered: Vocabulary) -> None:
    assert rows(registered, "mla-decode", "batch", "context", "heads") == {
        (1, 8192, 128), (1, 131072, 128), (64, 4096, 128), (128, 8192, 128), (128, 8192, 96),
        (128, 8192, 16), (128, 8192, 12), (16, 65536, 16),
    }  # fmt: skip


def test_the_ancestry_is_compared_at_equal_shape(registered: Vocabulary) -> None:
    points = expand(load("ancestry"), registered)
    shapes = {
        op: {(p.params["heads"], p.params["seqlens"], p.params["head_dim"]) for p in points
             if p.subject == op}
        for op in ("linear_attention", "delta_rule", "gated_delta_rule", "kda_prefill")
    }  # fmt: skip
    assert len({frozenset(shape) for shape in shapes.values()}) == 1


def test_quickstart_needs_no_package_beyond_torch_but_for_serving(registered: Vocabulary) -> None:
    everything = expand(load("quickstart"), registered)
    points = [point for point in everything if point.kind != "serving"]
    words = {word for point in points for word in point.backend.split("+")}
    assert words <= {"recurrent", "chunked", "absorbed", "expanded", "sdpa"}
    assert {p.subject for p in points} == {
        "kda_prefill", "kda_decode", "mla_prefill", "mla_decode", "kimi-linear-48b-a3b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"), [("model", "kv-throughput-cpu"), ("serving", "serving-quickstart")]
)
def test_quickstart_holds_other_levels_as_their_own_scenarios_do(
    registered: Vocabulary, kind: str, name: str
) -> None:
    own = expand(load(name), registered)
    held = [point for point in expand(load("quickstart"), registered) if point.kind == kind]
    assert [(p.backend, p.params) for p in held] == [(p.backend, p.params) for p in own]
    parts = [part for part in load("quickstart").parts if part.kind == kind]
    assert [p.measure.launches for p in parts] == [p.measure.launches for p in load(name).parts]


def test_quickstart_measures_a_model_as_its_own_scenario_does() -> None:
    measures = [part.measure for part in load("quickstart").parts if part.kind == "model"]
    assert measures == [part.measure for part in load("kv-throughput-cpu").parts]


def test_whole_number_axes_of_every_operator_refuse_negative_sizes(registered: Vocabulary) -> None:
    for words in registered.ops.values():
        for spec in words.axes.values():
            if spec.type in ("int", "lengths"):
                assert spec.minimum is not None
                assert spec.minimum >= 0


def test_loading_imports_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from benchx import scenario; scenario.load('quickstart'); "
        "print([name for name in ('torch', 'pandas', 'matplotlib') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
