"""The chunked form equals the token recurrence, and the recurrence is the published one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchx_kernels.reference_linear import (
    Result,
    Terms,
    activate,
    block_order,
    chunked,
    l2_normalised,
    log_decay,
    recurrent,
)

HEADS, WIDTH, VALUE = 3, 20, 12
GATES = ("none", "head", "channel")
RAGGED = (0, 65, 17, 0, 130, 1, 0)


@dataclass(frozen=True)
class Problem:
    """Terms of a random prefill and its initial state."""

    terms: Terms
    state: Tensor
    lengths: tuple[int, ...]

    def by_token(self) -> Result:
        return recurrent(self.terms, block_order(self.lengths, 1, torch.device("cpu")), self.state)

    def by_chunk(self, chunk: int = 64) -> Result:
        order = block_order(self.lengths, chunk, torch.device("cpu"))
        return chunked(self.terms, order, self.state)


def problem(
    lengths: tuple[int, ...] = RAGGED,
    gate: str = "channel",
    *,
    delta: bool = True,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Problem:
    """Normalised keys, log decays in (-3, 0)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    tokens = sum(lengths)
    widths = {"none": 0, "head": 1, "channel": WIDTH}
    decay = -3 * normal(tokens, HEADS, widths[gate]).sigmoid() if widths[gate] else None
    terms = activate(
        normal(tokens, HEADS, WIDTH),
        normal(tokens, HEADS, WIDTH),
        normal(tokens, HEADS, VALUE),
        decay,
        normal(tokens, HEADS) if delta else None,
        gate="none" if decay is None else "log",
        a_log=None,
        dt_bias=None,
        lower_bound=-5.0,
        scale=WIDTH**-0.5,
        qk_l2norm=True,
        dtype=dtype,
    )
    return Problem(terms, normal(len(lengths), HEADS, VALUE, WIDTH), lengths)


def with_terms(base: Problem, **changed: Tensor) -> Problem:
    fields = {name: getattr(base.terms, name) for name in ("q", "k", "v", "log_decay", "beta")}
    return Problem(Terms(**(fields | changed)), base.state, base.lengths)


def distance(a: Result, b: Result) -> float:
    """Largest absolute difference of outputs and states; both are of order 1."""
    pairs = ((a.o, b.o), (a.final_state, b.final_state))
    differences = [(x - y).abs().max().item() for x, y in pairs if x.numel()]
    return max(differences, default=0.0)


@pytest.mark.parametrize("delta", [True, False], ids=["delta", "sum"])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("chunk", [1, 16, 64])
def test_the_chunked_form_equals_the_recurrence(gate: str, chunk: int, delta: bool) -> None:
    case = problem(gate=gate, delta=delta)
    assert distance(case.by_token(), case.by_chunk(chunk)) < 1e-12


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 70), max_size=5).map(tuple),
    chunk=st.sampled_from([2, 8, 32]),
    gate=st.sampled_from(GATES),
)
def test_any_batch_of_lengths_gives_the_same_in_both_forms(
    lengths: tuple[int, ...], chunk: int, gate: str
) -> None:
    case = problem(lengths, gate)
    assert distance(case.by_token(), case.by_chunk(chunk)) < 1e-12


def test_the_recurrence_is_the_product_of_transition_matrices() -> None:
    """Kimi Linear's S_t = (I - beta k k^T) Diag(alpha) S + beta k v^T, written out in full."""
    case = problem((9,))
    terms, result = case.terms, case.by_token()
    assert terms.log_decay is not None
    assert terms.beta is not None
    for head in range(HEADS):
        state = case.state[0, head].T  # [K, V]
        for t in range(9):
            k, v = terms.k[t, head], terms.v[t, head]
            beta, alpha = terms.beta[t, head], terms.log_decay[t, head].exp()
            transition = (torch.eye(WIDTH) - beta * torch.outer(k, k)) @ torch.diag(alpha)
            state = transition @ state + beta * torch.outer(k, v)
            torch.testing.assert_close(result.o[t, head], state.T @ terms.q[t, head])
        torch.testing.assert_close(result.final_state[0, head], state.T)


def test_without_gate_and_delta_rule_it_is_the_masked_attention_without_softmax() -> None:
    case = problem((33,), "none", delta=False)
    terms = case.terms
    scores = torch.einsum("thk,shk->hts", terms.q, terms.k).tril()
    expected = torch.einsum("hts,shv->thv", scores, terms.v)
    expected += torch.einsum("thk,hvk->thv", terms.q, case.state[0])
    torch.testing.assert_close(case.by_chunk().o, expected)


@pytest.mark.parametrize("gate", ["head", "channel"])
def test_masked_tokens_reset_the_state_without_loss_of_precision_in_fp32(gate: str) -> None:
    """Sums of -1000 must never be subtracted: 64 of them leave no digit of a decay near 1."""
    exact, rounded = problem((200,), gate), problem((200,), gate, dtype=torch.float32)
    assert exact.terms.log_decay is not None
    masked = exact.terms.log_decay * 0.01
    masked[::3] = -1000.0
    truth = with_terms(exact, log_decay=masked).by_token()
    ours = with_terms(rounded, log_decay=masked.float()).by_chunk()
    assert distance(truth, ours) < 1e-5


@pytest.mark.parametrize("decay", [-5.0, -90.0, -1e4])
def test_uniform_strong_decay_overflows_nowhere(decay: float) -> None:
    """A factor exp(-cumsum) would be infinite here (vllm-project/vllm#43833)."""
    exact, rounded = problem((100,)), problem((100,), dtype=torch.float32)
    assert exact.terms.log_decay is not None
    strong = torch.full_like(exact.terms.log_decay, decay)
    truth = with_terms(exact, log_decay=strong).by_token()
    assert distance(truth, with_terms(rounded, log_decay=strong.float()).by_chunk()) < 1e-5


@pytest.mark.parametrize("spread", [0.0, 0.4], ids=["identical", "correlated"])
@pytest.mark.parametrize("gate", GATES)
def test_collinear_keys_without_decay_stay_exact_in_fp32(gate: str, spread: float) -> None:
    """vllm-project/FlashKDA#10 and NVIDIA/cudnn-frontend#1051: NaN where keys coincide."""
    exact, rounded = problem((300,), gate), problem((300,), gate, dtype=torch.float32)
    keys = l2_normalised(exact.terms.k[:1] + spread * exact.terms.k)
    changes = {"k": keys, "beta": torch.full_like(exact.terms.k[..., 0], 0.9997)}
    if exact.terms.log_decay is not None:
        changes["log_decay"] = exact.terms.log_decay * 1e-6
    truth = with_terms(exact, **changes).by_token()
    ours = with_terms(rounded, **{name: x.float() for name, x in changes.items()}).by_chunk()
    assert distance(truth, ours) < 1e-4


def test_an_empty_sequence_keeps_its_state_and_an_absent_state_is_zero() -> None:
    case = problem((0, 3))
    assert torch.equal(case.by_chunk().final_state[0], case.state[0])
    order = block_order((0, 3), 64, torch.device("cpu"))
    assert not chunked(case.terms, order, None).final_state[0].any()


def test_a_batch_without_tokens_or_without_sequences_is_fine() -> None:
    for lengths in ((0, 0), ()):
        case = problem(lengths)
        assert torch.equal(case.by_chunk().final_state, case.state)
        assert torch.equal(case.by_token().final_state, case.state)


def test_sequences_do_not_see_each_other() -> None:
    whole = problem((40, 70, 5))
    alone = problem((40, 70, 5))
    alone.terms.v[40:110] = 100.0
    for got, expected in (
        (alone.by_chunk(), whole.by_chunk()),
        (alone.by_token(), whole.by_token()),
    ):
        assert torch.equal(got.o[:40], expected.o[:40])
        assert torch.equal(got.o[110:], expected.o[110:])


def test_neither_form_changes_its_operands() -> None:
    case = problem()
    before = [x.clone() for x in (case.terms.q, case.terms.k, case.terms.v, case.state)]
    case.by_token(), case.by_chunk()
    after = (case.terms.q, case.terms.k, case.terms.v, case.state)
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


def test_many_small_spans_give_what_one_span_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    case = problem((200, 0, 130, 64, 64, 1))
    whole = case.by_chunk(16)
    monkeypatch.setattr("benchx_kernels.reference_linear_chunked.SPAN_ELEMENTS", 1)
    assert distance(whole, case.by_chunk(16)) < 1e-13


def test_a_chunk_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(ValueError, match="power of two, got 48"):
        problem().by_chunk(48)


def test_the_bounded_gate_lies_between_its_bound_and_zero() -> None:
    logits = torch.linspace(-30, 30, 61, dtype=torch.float64).view(61, 1, 1)
    zeros = torch.zeros(1, dtype=torch.float64)
    decay = log_decay(
        logits, gate="bounded", a_log=zeros, dt_bias=zeros.view(1, 1), lower_bound=-5.0,
        dtype=torch.float64,
    )  # fmt: skip
    assert decay is not None
    assert decay.min() >= -5
    assert decay.max() <= 0
    assert decay[30].item() == pytest.approx(-2.5)
    assert decay[-1].item() == pytest.approx(-5.0)


def test_the_softplus_gate_is_minus_a_times_log_of_one_plus_exp() -> None:
    logits, rate, bias = 22.0, 3.0, -1.5  # beyond 20, where F.softplus is no longer exact
    decay = log_decay(
        torch.full((1, 1, 1), logits),
        gate="softplus",
        a_log=torch.tensor([rate], dtype=torch.float64).log(),
        dt_bias=torch.full((1, 1), bias),
        lower_bound=-5.0,
        dtype=torch.float64,
    )
    assert decay is not None
    expected = -rate * math.log1p(math.exp(logits + bias))
    assert decay.item() == pytest.approx(expected, rel=1e-13)


def test_an_incomplete_or_unknown_gate_is_refused() -> None:
    g = torch.zeros(1, 1, 1)
    nothing = {"a_log": None, "dt_bias": None, "lower_bound": -5.0, "dtype": torch.float32}
    with pytest.raises(ValueError, match="needs a_log and dt_bias"):
        log_decay(g, gate="bounded", **nothing)
    with pytest.raises(ValueError, match="needs g"):
        log_decay(None, gate="log", **nothing)
    with pytest.raises(ValueError, match="'soft' is none of"):
        log_decay(g, gate="soft", **nothing)


def test_the_norm_has_its_epsilon_under_the_root() -> None:
    x = torch.tensor([3e-4, 4e-4], dtype=torch.float64)
    assert l2_normalised(x)[0].item() == pytest.approx(3e-4 / math.sqrt(25e-8 + 1e-6))


def test_the_order_of_very_many_sequences_is_found_at_once() -> None:
    order = block_order((3,) * 50_000 + (20_000,), 1, torch.device("cpu"))
    assert order.counts[:4] == (50_001, 50_001, 50_001, 1)
    assert len(order.counts) == 20_000
    assert order.sequences[0] == 50_000
