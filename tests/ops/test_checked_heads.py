"""Which heads have a truth: spread over all of them, and other ones in each launch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import benchx.ops.catalog  # noqa: F401
from benchx.ops import linear_truth, mla_reference
from benchx.ops.base import OPERATORS, JudgedInTurns
from benchx.ops.checked_heads import checked_heads, with_heads

SIZES: dict[str, dict[str, Any]] = {
    "kda_prefill": {"seqlens": "9+3"},
    "delta_rule": {"seqlens": "9+3"},
    "gated_delta_rule": {"seqlens": "9+3"},
    "linear_attention": {"seqlens": "9+3"},
    "kda_decode": {"batch": 2},
    "mla_prefill": {"seqlens": "9+3"},
    "mla_decode": {"batch": 2, "context": 9},
}


@given(st.integers(1, 200), st.floats(0, 2), st.integers(0, 50))
def test_heads_are_as_many_as_can_be_afforded_and_at_least_three(
    heads: int, share: float, turn: int
) -> None:
    chosen = checked_heads(heads, share, turn)
    if chosen is None:
        assert share >= 1 or heads <= 3
        return
    assert len(set(chosen)) == len(chosen) == max(3, int(heads * share))
    assert list(chosen) == sorted(chosen)
    assert chosen[0] >= 0
    assert chosen[-1] < heads


@given(st.integers(4, 200), st.floats(0, 0.99))
def test_the_first_turn_has_the_first_and_the_last_head(heads: int, share: float) -> None:
    chosen = checked_heads(heads, share, 0)
    assert chosen is None or {0, heads - 1} <= set(chosen)


@pytest.mark.parametrize("heads", [32, 64, 96, 128])
def test_five_launches_check_fifteen_heads_where_each_can_afford_three(heads: int) -> None:
    seen = [head for turn in range(5) for head in checked_heads(heads, 0.0, turn) or ()]
    assert len(set(seen)) == 15


def test_the_method_says_how_many_heads_of_how_many() -> None:
    assert with_heads("fp64", None, 96) == "fp64"
    assert with_heads("fp64", (0, 48, 95), 96) == "fp64, 3 of 96 heads (0+48+95)"
    many = checked_heads(96, 0.5, 1)
    assert with_heads("fp64", many, 96) == "fp64, 48 of 96 heads (evenly spread from 1)"


@pytest.mark.parametrize("name", SIZES)
def test_every_operator_with_heads_judges_others_in_each_turn(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = OPERATORS.get(name)
    assert isinstance(operator, JudgedInTurns)
    known = {key: axis.default for key, axis in operator.axes.items() if axis.default is not None}
    params = known | {"heads": 16, "dtype": "float32"} | SIZES[name]
    inputs = operator.make_inputs(params, seed=0, device=torch.device("cpu"))
    whole = operator.reference(inputs)
    monkeypatch.setattr(linear_truth, "REFERENCE_ELEMENTS", {"cpu": 1})
    monkeypatch.setattr(mla_reference, "BUDGET_FLOPS", {"cpu": 1.0})
    turns = [operator.reference_in_turn(inputs, turn) for turn in range(3)]
    assert [turn.heads for turn in turns] == [checked_heads(16, 0.0, turn) for turn in range(3)]
    for turn in turns:
        for output, truth in turn.outputs.items():
            index = torch.tensor(turn.heads)
            picked = whole.outputs[output].index_select(turn.head_dims[output], index)
            torch.testing.assert_close(truth, picked, atol=1e-12, rtol=0)
