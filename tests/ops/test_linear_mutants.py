"""Each kind of mistake of a KDA kernel shows in the check that a backend must pass before timing.

The mistakes are made one at a time in the token recurrence, which is right without them. What is
asked is the check of a run (`judge` on seeded inputs), and for carries over many tokens that of the
second inputs: the fresh model's bounded gate forgets within a few.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.measure.correctness import judge
from benchx.ops.base import OPERATORS, JudgedTwice
from benchx.ops.linear_cases import prefill_cases
from benchx.ops.linear_inputs import DecodeInputs, LinearInputs
from benchx.ops.linear_truth import packed_decode, terms_of
from benchx.runner.kernel_bench import SECOND_ALLOWANCE
from benchx_kernels.reference_linear import Terms

CPU = torch.device("cpu")
WIDTH, CHUNK = 32, 32
PREFILL, DECODE = OPERATORS.get("kda_prefill"), OPERATORS.get("kda_decode")
GATES = ("bounded", "softplus", "log")

OPERANDS = ("no decay", "gate of the token before", "beta of the token before", "scale twice",
            "q and k swapped", "no norm")  # fmt: skip
STATES = ("initial state forgotten", "initial state transposed", "initial state of the next")
STEPS = ("last token masked", "read before the update", "decay after the update", "no delta rule",
         "decay of padding", "one head for all")  # fmt: skip
SEGMENTS = ("boundary one token late", "boundary forgotten")
CHUNKS = ("state dropped at chunks", "first token of a chunk not decayed")
LOST = "what chunks carry over is lost"
MISTAKES = (*OPERANDS, *STATES, *STEPS, *SEGMENTS)


def point(operator: str, gate: str, **values: Scalar) -> Params:
    axes = OPERATORS.get(operator).axes
    known = {name: axis.default for name, axis in axes.items() if axis.default is not None}
    return known | {"heads": 3, "head_dim": WIDTH, "value_dim": WIDTH, "gate": gate} | values


def operands(inputs: LinearInputs, mistake: str | None) -> tuple[Tensor, ...]:
    """q, k, v, log decay and beta in fp32."""
    terms: Terms = terms_of(inputs, torch.float32)
    q, k, v, decay, beta = terms.q, terms.k, terms.v, terms.log_decay, terms.beta
    assert decay is not None
    assert beta is not None
    if mistake == "no decay":
        decay = torch.zeros_like(decay)
    if mistake == "gate of the token before":
        decay = decay.roll(1, 0)
    if mistake == "beta of the token before":
        beta = beta.roll(1, 0)
    if mistake == "scale twice":
        q = q * inputs.scale
    if mistake == "q and k swapped":
        q, k = k * inputs.scale, q / inputs.scale
    if mistake == "no norm":
        k = inputs.k.float()
    if mistake == "one head for all":
        decay = decay[:, :1].expand_as(decay)
    return q, k, v, decay, beta


def initial(inputs: LinearInputs, sequence: int, mistake: str | None) -> Tensor:
    assert inputs.initial_state is not None
    if mistake == "initial state of the next":
        sequence = (sequence + 1) % len(inputs.lengths)
    state = inputs.initial_state[sequence].float()
    if mistake == "initial state forgotten":
        return torch.zeros_like(state)
    return state.mT.contiguous() if mistake == "initial state transposed" else state.clone()


def bounds(inputs: LinearInputs, mistake: str | None) -> Iterator[tuple[int, int]]:
    ends = inputs.cu_seqlens.tolist()
    if mistake == "boundary one token late":
        ends[1:-1] = [end + 1 for end in ends[1:-1]]
    if mistake == "boundary forgotten":
        return iter([(0, ends[-1]), *((ends[-1], ends[-1]) for _ in ends[2:])])
    return pairwise(ends)


def advance(
    state: Tensor, row: tuple[Tensor, ...], at: int, mistake: str | None
) -> tuple[Tensor, Tensor]:
    """State and output after one token, `at` from the start of its sequence."""
    q, k, v, log_decay, beta = row
    decay = log_decay.exp()[:, None]
    first = at > 0 and at % CHUNK == 0
    if mistake == "state dropped at chunks" and first:
        state = torch.zeros_like(state)
    kept = mistake == "decay after the update" or (
        mistake == "first token of a chunk not decayed" and first
    )
    before = state if kept else state * decay
    stored = 0 if mistake == "no delta rule" else torch.einsum("hvk,hk->hv", before, k)
    after = before + torch.einsum("hv,hk->hvk", (v - stored) * beta[:, None], k)
    after = after * decay if mistake == "decay after the update" else after
    read = before if mistake == "read before the update" else after
    return after, torch.einsum("hvk,hk->hv", read, q)


def recurrence(inputs: LinearInputs, mistake: str | None) -> dict[str, Tensor]:
    """`o` and `final_state` of a prefill, with one mistake or none."""
    rows = operands(inputs, mistake)
    o, finals = torch.zeros(inputs.v.shape), []
    for sequence, (begin, end) in enumerate(bounds(inputs, mistake)):
        state = started = initial(inputs, sequence, mistake)
        for token in range(begin, end - (mistake == "last token masked")):
            row = tuple(x[token] for x in rows)
            state, o[token] = advance(state, row, token - begin, mistake)
            if mistake == LOST and (token - begin + 1) % CHUNK == 0:
                over = rows[3][token + 1 - CHUNK : token + 1].sum(0).exp()[:, None]
                state = started = state - over * started
        if mistake == "decay of padding" and end > begin:
            state = state * rows[3][end - 1].exp()[:, None]
        finals.append(state)
    return {
        "o": o.to(inputs.v.dtype),
        "final_state": torch.stack(finals).to(inputs.state_dtype),
    }


def second_inputs(inputs: LinearInputs) -> LinearInputs | None:
    assert isinstance(PREFILL, JudgedTwice)
    second = PREFILL.second_inputs(inputs)
    assert second is None or isinstance(second, LinearInputs)
    return second


def found(inputs: LinearInputs, mistake: str | None) -> str | None:
    """What the check of a run says."""
    specs, truth = PREFILL.output_specs(inputs), PREFILL.reference(inputs)
    return judge(recurrence(inputs, mistake), specs, truth, PREFILL.max_rms_ratio).reason


@pytest.mark.parametrize("gate", GATES)
def test_a_mistake_in_prefill_shows(gate: str) -> None:
    params = point("kda_prefill", gate, seqlens="70+37")
    inputs = PREFILL.make_inputs(params, seed=3, device=CPU)
    assert found(inputs, None) is None
    unseen = [mistake for mistake in (*MISTAKES, *CHUNKS) if found(inputs, mistake) is None]
    assert unseen == []


@pytest.mark.parametrize("gate", GATES)
def test_a_state_that_is_not_carried_over_chunks_shows(gate: str) -> None:
    cases = {case.name: case for case in prefill_cases(PREFILL, width=WIDTH)}
    inputs = cases[f"gates near zero, {gate} gate"].make(PREFILL, CPU)
    assert found(inputs, None) is None
    assert found(inputs, LOST) is not None


def test_what_the_fresh_bounded_gate_forgets_shows_in_the_second_inputs() -> None:
    params = point("kda_prefill", "bounded", seqlens="70+37")
    inputs = PREFILL.make_inputs(params, seed=3, device=CPU)
    assert found(inputs, LOST) is None
    second = second_inputs(inputs)
    assert second is not None
    assert second.nbytes() == inputs.nbytes()
    assert found(second, None) is None
    truth, specs = PREFILL.reference(second), PREFILL.output_specs(second)
    bound = SECOND_ALLOWANCE * PREFILL.max_rms_ratio
    assert "o: rms" in str(judge(recurrence(second, LOST), specs, truth, bound).reason)


def test_a_softplus_gate_remembers_for_long_enough() -> None:
    params = point("kda_prefill", "softplus", seqlens="70+37")
    inputs = PREFILL.make_inputs(params, seed=3, device=CPU)
    assert found(inputs, LOST) is not None
    assert second_inputs(inputs) is None


def decode(inputs: DecodeInputs, mistake: str | None) -> dict[str, Tensor]:
    """One step as a packed batch of short sequences, with one mistake or none."""
    results = recurrence(packed_decode(inputs), mistake)
    return {"o": results["o"].view(inputs.v.shape), "state": results["final_state"]}


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("gate", GATES)
def test_a_mistake_in_decode_shows(gate: str, tokens: int) -> None:
    params = point("kda_decode", gate, batch=5, tokens=tokens)
    inputs = DECODE.make_inputs(params, seed=3, device=CPU)
    specs, truth = DECODE.output_specs(inputs), DECODE.reference(inputs)

    def reason(mistake: str | None) -> str | None:
        return judge(decode(inputs, mistake), specs, truth, DECODE.max_rms_ratio).reason

    assert reason(None) is None
    assert [mistake for mistake in MISTAKES if reason(mistake) is None] == []


def test_a_state_that_is_left_as_it_was_shows() -> None:
    inputs = DECODE.make_inputs(point("kda_decode", "bounded", batch=2), seed=3, device=CPU)
    specs, truth = DECODE.output_specs(inputs), DECODE.reference(inputs)
    stale = decode(inputs, None) | {"state": inputs.state}
    assert "state: rms" in str(judge(stale, specs, truth, DECODE.max_rms_ratio).reason)


def test_what_accumulates_in_bf16_shows_where_the_state_remembers() -> None:
    """With the fresh bounded gate, which forgets, a bf16 state is within what the bound allows."""
    params = point("kda_prefill", "softplus", seqlens="300")
    inputs = PREFILL.make_inputs(params, seed=3, device=CPU)
    rows, state = operands(inputs, None), initial(inputs, 0, None)
    o = torch.zeros(inputs.v.shape)
    for token in range(300):
        state, o[token] = advance(state, tuple(x[token] for x in rows), token, None)
        state = state.bfloat16().float()
    outputs = {"o": o.bfloat16(), "final_state": state[None]}
    specs, truth = PREFILL.output_specs(inputs), PREFILL.reference(inputs)
    assert "rms ratio" in str(judge(outputs, specs, truth, PREFILL.max_rms_ratio).reason)


@pytest.mark.parametrize(
    ("seqlens", "heads", "missing"),
    [
        ("8192", 4, (slice(0, 32),)),  # the first chunk, small while the state fills
        ("8192+32", 4, (slice(8192, None),)),  # the second sequence
        ("256x128", 8, (slice(128 * 200, 128 * 201), 3)),  # one head of one sequence
    ],
)
@pytest.mark.parametrize("operator", ["kda_prefill", "linear_attention"])
def test_a_part_of_the_outputs_that_is_missing_shows_however_small_its_share(
    operator: str, seqlens: str, heads: int, missing: tuple[int | slice, ...]
) -> None:
    found = OPERATORS.get(operator)
    gate = str(found.axes["gate"].default) if "gate" in found.axes else "none"
    params = point(operator, gate, seqlens=seqlens, initial_state=False) | {"heads": heads}
    inputs = found.make_inputs(params, seed=0, device=CPU)
    specs, reference = found.output_specs(inputs), found.reference(inputs)
    outputs = {name: value.to(specs[name].dtype) for name, value in reference.outputs.items()}
    assert judge(outputs, specs, reference, found.max_rms_ratio).reason is None
    outputs["o"][missing] = 0
    reason = judge(outputs, specs, reference, found.max_rms_ratio).reason
    assert reason is not None
    assert reason.startswith("o: ")
