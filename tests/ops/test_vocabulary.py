"""The words that scenarios may use follow from what is registered."""

from __future__ import annotations

from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.vocabulary import kernel_words


def test_every_operator_has_words_with_its_axes_and_backends() -> None:
    words = kernel_words()
    assert tuple(words) == OPERATORS.names()
    for name, found in words.items():
        assert found.axes is OPERATORS.get(name).axes
        assert found.backends == backends_of(name).names()


def test_the_lineage_of_kda_is_listed_oldest_first() -> None:
    names = list(kernel_words())
    lineage = ["linear_attention", "delta_rule", "gated_delta_rule", "kda_prefill", "kda_decode"]
    assert [name for name in names if name in lineage] == lineage


def test_words_carry_the_problem_of_a_combination() -> None:
    found = kernel_words()["kda_prefill"]
    params = {name: axis.default for name, axis in found.axes.items()}
    assert found.problem(params | {"heads": 1, "seqlens": "0"}) == "seqlens 0 holds no token"
