"""From axes to points: how many, in which order, and never one twice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.axes import AxisSpec
from benchx.core.errors import ScenarioError
from benchx.core.point import Point
from benchx.scenario import OpWords, Scenario, Vocabulary, expand

Loaded = Callable[..., Scenario]

BACKENDS = ("slow", "fast", "other")
# Never 13: the made-up operator refuses it.
AXES = st.fixed_dictionaries(
    {
        "heads": st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True),
        "seqlens": st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    },
    optional={
        "width": st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
        "state": st.lists(st.booleans(), min_size=1, unique=True),
        "dtype": st.lists(st.sampled_from(["bf16", "fp32"]), min_size=1, unique=True),
    },
)
NAMED = st.lists(st.sampled_from(BACKENDS), min_size=1, unique=True)


def expanded(vocabulary: Vocabulary, **fields: object) -> tuple[Point, ...]:
    data = {"schema": 1, "name": "x", "kind": "kernel", "op": "mix", **fields}
    return expand(Scenario.from_json(data, source=Path("x.yaml")), vocabulary)


def test_backends_of_a_combination_are_neighbours_and_the_last_axis_runs_fastest(
    loaded: Loaded, base: str, vocabulary: Vocabulary
) -> None:
    points = expand(loaded(base), vocabulary)
    assert [(p.params["heads"], p.params["seqlens"], p.backend) for p in points] == [
        (4, "64", "slow"), (4, "64", "fast"), (4, "2x32", "slow"), (4, "2x32", "fast"),
        (8, "64", "slow"), (8, "64", "fast"), (8, "2x32", "slow"), (8, "2x32", "fast"),
    ]  # fmt: skip


def test_every_axis_of_the_operator_has_a_value(
    loaded: Loaded, base: str, vocabulary: Vocabulary
) -> None:
    for point in expand(loaded(base), vocabulary):
        assert set(point.params) == set(vocabulary.ops["mix"].axes)
        assert (point.params["width"], point.params["dtype"]) == (64, "bf16")


def test_sizes_with_letters_are_stored_as_numbers(
    loaded: Loaded, base: str, vocabulary: Vocabulary
) -> None:
    text = base.replace("[4, 8]", "[1k]").replace("[64, 2x32]", "[128k, 2x1k+1]")
    points = expand(loaded(text), vocabulary)
    assert {(p.params["heads"], p.params["seqlens"]) for p in points} == {
        (1024, "131072"),
        (1024, "2x1024+1"),
    }


def test_a_whole_number_on_a_float_axis_is_the_same_point_as_the_float(
    loaded: Loaded, base: str, vocabulary: Vocabulary
) -> None:
    whole, real = (
        expand(loaded(base.replace("width: 64", f"bound: {text}")), vocabulary)
        for text in ("-2", "-2.0")
    )
    assert [p.point_id for p in whole] == [p.point_id for p in real]


def test_all_backends_are_those_registered_in_their_order(
    loaded: Loaded, base: str, vocabulary: Vocabulary
) -> None:
    points = expand(loaded(base.replace("[slow, fast]", "all")), vocabulary)
    assert [p.backend for p in points[:3]] == list(BACKENDS)


def test_an_exclusion_matches_in_every_key_that_it_names(
    loaded: Loaded, base: str, vocabulary: Vocabulary
) -> None:
    text = base + "exclude:\n- {heads: 4, seqlens: 32+32}\n- {heads: [8], backend: fast}\n"
    points = expand(loaded(text), vocabulary)
    assert [(p.params["heads"], p.params["seqlens"], p.backend) for p in points] == [
        (4, "64", "slow"), (4, "64", "fast"), (8, "64", "slow"), (8, "2x32", "slow"),
    ]  # fmt: skip


def test_an_exclusion_may_name_a_constant(
    loaded: Loaded, base: str, vocabulary: Vocabulary
) -> None:
    text = base + "exclude: [{width: 64, dtype: bf16, heads: 4}]\n"
    assert {p.params["heads"] for p in expand(loaded(text), vocabulary)} == {8}


def test_an_excluded_combination_is_not_asked_to_make_sense(
    loaded: Loaded, base: str, vocabulary: Vocabulary
) -> None:
    text = base.replace("[4, 8]", "[4, 13]") + "exclude: [{heads: 13}]\n"
    assert {p.params["heads"] for p in expand(loaded(text), vocabulary)} == {4}


def test_points_of_different_parts_are_different_points(
    loaded: Loaded, vocabulary: Vocabulary
) -> None:
    part = "kind: kernel, op: step, backends: all, axes: {batch: [1, 2]}"
    text = f"schema: 1\nkind: suite\nparts: [{{{part}}}, {{{part}, measure: {{cache: warm}}}}]\n"
    points = expand(loaded(text), vocabulary)
    assert [p.part for p in points] == [0, 0, 1, 1]
    assert len({p.point_id for p in points}) == 4


@given(axes=AXES, backends=NAMED)
def test_the_plan_is_the_product_and_every_point_is_unique(
    vocabulary: Vocabulary, axes: dict[str, list[object]], backends: list[str]
) -> None:
    points = expanded(vocabulary, axes=axes, backends=backends)
    assert len(points) == math.prod(map(len, axes.values())) * len(backends)
    assert len({point.point_id for point in points}) == len(points)


@given(axes=AXES, backends=NAMED)
def test_points_of_a_group_are_neighbours(
    vocabulary: Vocabulary, axes: dict[str, list[object]], backends: list[str]
) -> None:
    points = expanded(vocabulary, axes=axes, backends=backends)
    runs = [list(run) for _, run in itertools.groupby(points, key=lambda point: point.group_id)]
    assert len({run[0].group_id for run in runs}) == len(runs)
    assert all([point.backend for point in run] == backends for run in runs)


@given(axes=AXES, backends=NAMED, data=st.data())
def test_the_order_of_axes_and_values_changes_only_the_order_of_points(
    vocabulary: Vocabulary, axes: dict[str, list[object]], backends: list[str], data: st.DataObject
) -> None:
    names = data.draw(st.permutations(list(axes)))
    turned = {name: data.draw(st.permutations(axes[name])) for name in names}
    ids = {p.point_id for p in expanded(vocabulary, axes=axes, backends=backends)}
    again = expanded(vocabulary, axes=turned, backends=data.draw(st.permutations(backends)))
    assert {p.point_id for p in again} == ids


@given(axes=AXES, backends=NAMED, data=st.data())
def test_exclusions_remove_exactly_what_they_match(
    vocabulary: Vocabulary, axes: dict[str, list[object]], backends: list[str], data: st.DataObject
) -> None:
    heads = data.draw(st.sampled_from(axes["heads"]))
    backend = data.draw(st.sampled_from(backends))
    every = expanded(vocabulary, axes=axes, backends=backends)
    gone = {p.point_id for p in every if p.params["heads"] == heads and p.backend == backend}
    if len(gone) == len(every):
        return
    rule = {"heads": [heads], "backend": backend}
    left = expanded(vocabulary, axes=axes, backends=backends, exclude=[rule])
    assert [p.point_id for p in left] == [p.point_id for p in every if p.point_id not in gone]


@given(
    rows=st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=6, unique=True
    ),
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
)
def test_zipped_axes_move_together(
    vocabulary: Vocabulary, rows: list[tuple[int, int]], widths: list[int]
) -> None:
    heads, seqlens = ([row[column] for row in rows] for column in (0, 1))
    points = expanded(
        vocabulary,
        axes={"heads": heads, "width": widths, "seqlens": seqlens},
        zip=[["heads", "seqlens"]],
        backends=["slow"],
    )
    found = [(p.params["heads"], int(str(p.params["seqlens"])), p.params["width"]) for p in points]
    assert found == [(*row, width) for row in rows for width in widths]


@pytest.mark.parametrize("name", ["outcome", "version", "cache", "device_time_ms", "ttft_ms_p50"])
def test_an_axis_named_like_a_column_of_the_rows_is_refused(name: str) -> None:
    """Its values would stand in the place of the outcome, the version, a figure."""
    axes = {name: AxisSpec(type="int", doc="somebody's axis")}
    words = OpWords(axes=axes, backends=("b",), problem=lambda _params: None)
    with pytest.raises(ScenarioError, match=rf"axes\.{name}: an axis can't be named '{name}'"):
        expanded(Vocabulary(ops={"mix": words}), backends=["b"], axes={name: [1, 2]})
