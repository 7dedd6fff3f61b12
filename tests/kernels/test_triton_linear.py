"""Our Triton kernels of the linear-attention family, interpreted, on inputs that break others.

The same cases run compiled on a GPU with `pytest -m gpu tests/ops/test_linear_backends.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.device import Device
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.conformance import offences
from benchx.ops.linear_cases import Case, decode_cases, prefill_cases
from benchx_kernels.batch import Batch
from benchx_kernels.chunk_prefill import States, chunk_prefill
from benchx_kernels.gate import Gate
from benchx_kernels.kda_decode import kda_decode

WIDTH = 64
QUICK = {  # one of each kind; the rest takes minutes in the interpreter
    "kda_prefill": (
        "1 token", "65 tokens", "tail of one token", "empty in the middle", "all empty",
        "bf16 state", "no initial state", "identical keys, bounded gate",
        "identical keys, softplus gate", "masked tokens, log gate",
    ),
    "gated_delta_rule": ("17 tokens", "masked tokens, log gate"),
    "delta_rule": ("17 tokens", "identical keys"),
    "linear_attention": ("17 tokens",),
    "kda_decode": ("batch 5, tokens 1", "batch 3, tokens 5", "bf16 state"),
}  # fmt: skip


def _cases(operator: str) -> list[Case[Any]]:
    cases = decode_cases if operator == "kda_decode" else prefill_cases
    return list(cases(OPERATORS.get(operator), width=WIDTH))


def _parameters() -> list[Any]:
    found = []
    for operator, quick in QUICK.items():
        for case in _cases(operator):
            marks = [] if case.name in quick else [pytest.mark.slow]
            found.append(pytest.param(operator, case, marks=marks, id=f"{operator}: {case.name}"))
    return found


def test_every_quick_case_exists() -> None:
    for operator, quick in QUICK.items():
        assert set(quick) <= {case.name for case in _cases(operator)}, operator


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy reports the overflows we mask
@pytest.mark.parametrize(("operator", "case"), _parameters())
def test_a_kernel_is_right_and_touches_nothing_else(
    interpreter: Device, operator: str, case: Case[Any]
) -> None:
    backend = backends_of(operator).get("triton")
    reason = backend.unavailable(case.params, interpreter)
    if reason is not None:
        pytest.skip(str(reason))
    inputs = case.make(OPERATORS.get(operator), torch.device("cpu"))
    assert offences(OPERATORS.get(operator), backend, inputs, interpreter) == []


TYPES = ("bfloat16", "float16", "float32")


@pytest.mark.parametrize("state_dtype", TYPES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operator", ["kda_prefill", "kda_decode"])
def test_every_pair_of_types_is_refused_by_the_backend_or_right(
    interpreter: Device, operator: str, dtype: str, state_dtype: str
) -> None:
    """What a scenario may name must not end as an error of the kernel's own checks."""
    found = OPERATORS.get(operator)
    backend = backends_of(operator).get("triton")
    change = {"heads": 1, "dtype": dtype, "state_dtype": state_dtype}
    params = next(iter(_cases(operator))).params | change
    refused = backend.unavailable(params, interpreter)
    assert (refused is None) == (state_dtype != "float16")
    if refused is None:
        inputs = found.make_inputs(params, seed=1, device=torch.device("cpu"))
        assert offences(found, backend, inputs, interpreter) == []


def _prefill(tokens: int = 70, *, heads: int = 1, v_first: bool = True) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).bfloat16()

    shape = (1, heads, WIDTH, WIDTH)
    return {
        "q": draw(tokens, heads, WIDTH),
        "k": draw(tokens, heads, WIDTH),
        "v": draw(tokens, heads, WIDTH),
        "beta": draw(tokens, heads),
        "gate": Gate(
            kind="bounded",
            g=draw(tokens, heads, WIDTH),
            a_log=torch.zeros(heads),
            dt_bias=torch.zeros(heads, WIDTH),
        ),
        "batch": Batch.from_lengths([tokens], "cpu"),
        "scale": WIDTH**-0.5,
        "states": States(
            initial=torch.randn(shape, generator=generator),
            final=torch.empty(shape),
            v_first=v_first,
        ),
    }


def _cut(arguments: dict[str, Any], part: slice, initial: torch.Tensor) -> dict[str, Any]:
    gate = arguments["gate"]
    cut = {name: arguments[name][part].contiguous() for name in ("q", "k", "v", "beta")}
    tokens = cut["q"].shape[0]
    return arguments | cut | {
        "gate": Gate(kind=gate.kind, g=gate.g[part].contiguous(), a_log=gate.a_log,
                     dt_bias=gate.dt_bias),
        "batch": Batch.from_lengths([tokens], "cpu"),
        "states": States(initial=initial, final=torch.empty_like(initial)),
    }  # fmt: skip


def test_a_later_token_leaves_earlier_outputs_bit_equal(interpreter: Device) -> None:
    arguments = _prefill()
    before = chunk_prefill(**arguments)
    for name in ("q", "k", "v", "beta"):
        arguments[name][50] += 1
    assert torch.equal(chunk_prefill(**arguments)[:50], before[:50])


def test_a_run_repeats_bit_for_bit(interpreter: Device) -> None:
    arguments = _prefill()
    first, state = chunk_prefill(**arguments), arguments["states"].final.clone()
    assert torch.equal(chunk_prefill(**arguments), first)
    assert torch.equal(arguments["states"].final, state)


def test_prefill_in_two_halves_is_one_prefill(interpreter: Device) -> None:
    arguments = _prefill(96)
    whole, state = chunk_prefill(**arguments), arguments["states"].final
    first = _cut(arguments, slice(0, 64), arguments["states"].initial)
    head = chunk_prefill(**first)
    second = _cut(arguments, slice(64, 96), first["states"].final)
    tail = chunk_prefill(**second)
    assert torch.equal(torch.cat([head, tail]), whole)  # 64 is a multiple of the chunk
    assert torch.equal(second["states"].final, state)


def test_decode_continues_a_prefill(interpreter: Device) -> None:
    arguments = _prefill(33)
    whole, state = chunk_prefill(**arguments), arguments["states"].final
    first = _cut(arguments, slice(0, 32), arguments["states"].initial)
    chunk_prefill(**first)
    gate, last = arguments["gate"], slice(32, 33)
    after = first["states"].final
    one = [arguments[name][last][None].contiguous() for name in ("q", "k", "v", "beta")]
    out = kda_decode(
        *one, after, scale=arguments["scale"],
        gate=Gate(kind=gate.kind, g=gate.g[last][None], a_log=gate.a_log, dt_bias=gate.dt_bias),
    )  # fmt: skip
    torch.testing.assert_close(out[0], whole[last], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(after, state, rtol=2e-2, atol=2e-2)


def test_both_state_layouts_hold_the_same_state(interpreter: Device) -> None:
    v_first, k_first = _prefill(), _prefill(v_first=False)
    k_first["states"].initial.copy_(v_first["states"].initial.transpose(2, 3))
    assert torch.equal(chunk_prefill(**v_first), chunk_prefill(**k_first))
    assert torch.equal(v_first["states"].final, k_first["states"].final.transpose(2, 3))


def test_segments_change_nothing_but_rounding(interpreter: Device) -> None:
    from dataclasses import replace

    from benchx_kernels._configs import prefill_config

    arguments = _prefill(200)
    whole, state = chunk_prefill(**arguments), arguments["states"].final.clone()
    config = prefill_config(torch.device("cpu"), 1, 200, 200, WIDTH, WIDTH)
    cut = chunk_prefill(**arguments, config=replace(config, segment_chunks=2))
    torch.testing.assert_close(cut, whole, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(arguments["states"].final, state, rtol=2e-2, atol=1e-2)


def test_an_indexed_pool_changes_only_its_own_entries(interpreter: Device) -> None:
    arguments = _prefill(2)
    gate = arguments["gate"]
    tensors = [arguments[name][:, None].contiguous() for name in ("q", "k", "v", "beta")]
    step = Gate(kind=gate.kind, g=gate.g[:, None].contiguous(), a_log=gate.a_log,
                dt_bias=gate.dt_bias)  # fmt: skip
    pool = torch.randn(5, 1, WIDTH, WIDTH)
    before, own = pool.clone(), pool[[3, 1]].clone()
    direct = kda_decode(*tensors, own, gate=step, scale=1.0)
    slots = torch.tensor([3, 1], dtype=torch.int32)
    assert torch.equal(kda_decode(*tensors, pool, gate=step, scale=1.0, slots=slots), direct)
    assert torch.equal(pool[[3, 1]], own)
    assert torch.equal(pool[[0, 2, 4]], before[[0, 2, 4]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": torch.zeros(70, 1, 32, dtype=torch.bfloat16)}, r"k is \(70, 1, 32\); expected"),
        ({"v": torch.zeros(70, 1, 64, dtype=torch.int32)}, "v is torch.int32"),
        ({"q": torch.zeros(70, 1, 128)[..., ::2]}, "q has strides"),
        ({"beta": torch.zeros(70, 2)}, "beta is"),
        ({"gate": Gate(kind="bounded", g=torch.zeros(70, 1, 64))}, "needs a_log and dt_bias"),
        ({"gate": Gate(kind="log")}, "gate 'log' with g unset"),
        ({"gate": Gate(kind="tanh", g=torch.zeros(70, 1, 64))}, "gate 'tanh' is none of bounded"),  # type: ignore[arg-type]
        ({"batch": Batch.from_lengths([69], "cpu")}, "the batch holds 69 tokens, q 70"),
        ({"batch": Batch(torch.tensor([0, 70], dtype=torch.int32), (70,))}, "is torch.int32"),
        ({"batch": Batch(torch.tensor([0, 30, 70]), (70,))}, r"cu_seqlens is \(3,\); expected"),
        ({"batch": Batch(torch.tensor([0, 1, 70, 1])[::2], (70,))}, "cu_seqlens has strides"),
        ({"states": States(initial=torch.zeros(1, 1, 64, 32))}, "initial_state is"),
        ({"q": torch.zeros(70, 1, 60)}, "K is 60"),
        ({"k": torch.zeros(70, 1, 64, dtype=torch.bfloat16, device="meta")}, "k is on meta"),
    ],
)
def test_a_wrong_argument_is_named_before_any_launch(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        chunk_prefill(**(_prefill() | change))


def test_boundaries_that_are_a_slice_of_something_longer_are_read_as_they_are(
    interpreter: Device,
) -> None:
    arguments = _prefill()
    bounds = torch.tensor([0, 9, 17, 9, 70, 9])[::2]
    o = chunk_prefill(**arguments | {"batch": Batch.from_cu_seqlens(bounds, 70), "states": None})
    own = Batch.from_lengths([17, 53], "cpu")
    assert torch.equal(o, chunk_prefill(**arguments | {"batch": own, "states": None}))


def test_a_pool_without_an_entry_is_refused() -> None:
    tensors = [torch.zeros(2, 1, 1, WIDTH).bfloat16() for _ in range(3)]
    gate = Gate(kind="log", g=torch.zeros(2, 1, 1, WIDTH))
    pool, slots = torch.zeros(0, 1, WIDTH, WIDTH), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match="the pool of states is empty; 2 sequences need slots"):
        kda_decode(*tensors, torch.zeros(2, 1, 1), pool, gate=gate, scale=1.0, slots=slots)


@pytest.mark.parametrize("lengths", [[3, -1], [2.5]])
def test_lengths_that_are_none_are_refused(lengths: list[Any]) -> None:
    with pytest.raises(ValueError, match="sequence lengths are"):
        Batch.from_lengths(lengths, "cpu")


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ([1, 5], "starts at 1"),
        ([0, 4], "ends at 4; the inputs hold 5"),
        ([0, 7, 5], "decreases"),
        ([0.0, 5.0], "expected integers"),
        ([[0, 5]], "expected integers"),
    ],
)
def test_wrong_sequence_boundaries_are_named(bounds: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Batch.from_cu_seqlens(torch.tensor(bounds), 5)
