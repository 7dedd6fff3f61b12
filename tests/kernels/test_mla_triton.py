"""Our Triton kernels of MLA, interpreted, on inputs that break others.

The same cases run compiled, and the Hopper kernels with them, on a GPU with
`pytest -m gpu tests/ops/test_mla_backends.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.device import Device
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.conformance import offences
from benchx.ops.mla_cases import DecodeCase, PrefillCase, decode_cases, prefill_cases
from benchx.ops.mla_draw import make_decode_inputs, make_prefill_inputs
from benchx.ops.mla_inputs import DecodeInputs, MlaShape, PrefillInputs
from benchx_kernels import reference_mla
from benchx_kernels._mla_configs import MlaDecodeConfig, MlaPrefillConfig
from benchx_kernels.batch import Batch
from benchx_kernels.mla_decode import mla_decode
from benchx_kernels.mla_prefill import mla_prefill

CPU = torch.device("cpu")
CASES = {"mla_decode": decode_cases, "mla_prefill": prefill_cases}
QUICK = {  # one of each kind; the rest takes minutes in the interpreter
    "mla_decode": (
        "page edges", "all empty", "empty in the middle", "2 tokens", "pages of 1", "pages of 100",
        "fp16", "fp8 cache", "no rope", "latent 256", "large logits", "projections",
    ),
    "mla_prefill": (
        "1 token", "65 tokens, prefix of 37", "empty in the middle", "tail of one token", "fp16",
        "no rope", "value 64", "projections",
    ),
}  # fmt: skip


def _parameters() -> list[Any]:
    found = []
    for operator, quick in QUICK.items():
        for case in CASES[operator](OPERATORS.get(operator)):
            marks = [] if case.name in quick else [pytest.mark.slow]
            found.append(pytest.param(operator, case, marks=marks, id=f"{operator}: {case.name}"))
    return found


def test_every_quick_case_exists() -> None:
    for operator, quick in QUICK.items():
        assert set(quick) <= {case.name for case in CASES[operator](OPERATORS.get(operator))}


@pytest.mark.parametrize(("operator", "case"), _parameters())
def test_a_kernel_is_right_and_touches_nothing_else(
    interpreter: Device, operator: str, case: DecodeCase | PrefillCase
) -> None:
    backend = backends_of(operator).get("triton")
    reason = backend.unavailable(case.params, interpreter)
    if reason is not None:
        pytest.skip(str(reason))
    inputs = case.make(OPERATORS.get(operator), CPU)
    assert offences(OPERATORS.get(operator), backend, inputs, interpreter) == []


def shape(heads: int = 3, rope_dim: int = 16) -> MlaShape:
    return MlaShape(
        heads=heads, nope_dim=64, rope_dim=rope_dim, value_dim=64, kv_lora=64, dtype="bfloat16",
        projections=False,
    )  # fmt: skip


def step(lengths: tuple[int, ...] = (70, 0, 5), *, tokens: int = 2, page: int = 16) -> DecodeInputs:
    return make_decode_inputs(
        shape(), lengths, tokens=tokens, page_size=page, cache_dtype="bfloat16", seed=3, device=CPU
    )


def decode(inputs: DecodeInputs, config: MlaDecodeConfig | None = None) -> torch.Tensor:
    return mla_decode(
        inputs.q, inputs.kv_cache, inputs.block_table, inputs.seqlens,
        kv_lora=inputs.kv_lora, scale=inputs.scale, longest=max(inputs.lengths), config=config,
    )  # fmt: skip


def packed(lengths: tuple[int, ...] = (40, 0, 3), prefix: int = 5) -> PrefillInputs:
    keys = [length + prefix for length in lengths]
    return make_prefill_inputs(shape(), lengths, keys, seed=3, device=CPU)


SMALL = MlaPrefillConfig(block_m=16, block_n=16)


def prefill(inputs: PrefillInputs, config: MlaPrefillConfig = SMALL) -> torch.Tensor:
    assert inputs.k is not None
    assert inputs.v is not None
    return mla_prefill(
        inputs.q, inputs.k, inputs.v, scale=inputs.scale, config=config,
        queries=Batch.from_lengths(inputs.q_lengths, CPU),
        keys=Batch.from_lengths(inputs.kv_lengths, CPU),
    )  # fmt: skip


def ratio(found: torch.Tensor, reference: torch.Tensor) -> float:
    error = found.double() - reference.double()
    return float(error.square().mean().sqrt() / reference.double().square().mean().sqrt())


@pytest.mark.parametrize("splits", [2, 3, 32])
def test_splits_agree(interpreter: Device, splits: int) -> None:
    """More splits than tiles too: the idle ones must weigh nothing."""
    inputs = step((70, 0, 1), tokens=1)
    config = MlaDecodeConfig(block_m=16, block_n=16)
    whole = decode(inputs, replace(config, splits=1))
    assert ratio(decode(inputs, replace(config, splits=splits)), whole) < 3e-3


@pytest.mark.parametrize(("block_m", "block_n"), [(16, 16), (64, 16), (16, 32), (32, 64)])
def test_tiles_of_any_size_agree(interpreter: Device, block_m: int, block_n: int) -> None:
    """Pages of 16: a tile is a part of a page, a page, or many."""
    inputs = step((70, 2, 0), tokens=2)
    found = decode(inputs, MlaDecodeConfig(block_m=block_m, block_n=block_n, splits=2))
    reference = reference_mla.paged_latent_decode(
        inputs.q, inputs.kv_cache, inputs.block_table,
        lengths=inputs.lengths, kv_lora=inputs.kv_lora, scale=inputs.scale,
    )  # fmt: skip
    assert ratio(found, reference) < 6e-3


def test_offsets_beyond_two_to_the_31_elements_are_reached(interpreter: Device) -> None:
    """Page id times page size times width passes 2^31 (vllm and sglang wrapped there)."""
    inputs = step((20,), tokens=1)
    width = inputs.kv_cache.shape[2]
    page = 2**31 // (16 * width) + 7
    far = torch.empty(page + 2, 16, width, dtype=torch.bfloat16)  # never touched: no memory
    used = inputs.block_table[0].long()
    far[page : page + 2] = inputs.kv_cache[used]
    table = torch.tensor([[page, page + 1]], dtype=torch.int32)
    moved = replace(inputs, kv_cache=far, block_table=table)
    assert torch.equal(decode(moved), decode(inputs))


def test_a_length_beyond_the_table_reads_nothing_outside_it(interpreter: Device) -> None:
    inputs = step((32, 32), tokens=1)
    longer = replace(inputs, seqlens=torch.tensor([32, 1000], dtype=torch.int32))
    found = mla_decode(
        longer.q, longer.kv_cache, longer.block_table, longer.seqlens,
        kv_lora=longer.kv_lora, scale=longer.scale,
    )  # fmt: skip
    assert torch.equal(found, decode(inputs))


@pytest.mark.parametrize("run", [lambda: decode(step()), lambda: prefill(packed())])
def test_a_run_repeats_bit_for_bit(interpreter: Device, run: Callable[[], torch.Tensor]) -> None:
    assert torch.equal(run(), run())


def test_a_later_token_leaves_earlier_outputs_bit_equal(interpreter: Device) -> None:
    inputs = packed((40,), prefix=0)
    before = prefill(inputs)
    assert inputs.k is not None
    assert inputs.v is not None
    inputs.k[30] += 1
    inputs.v[30] += 1
    after = prefill(inputs)
    assert torch.equal(after[:30], before[:30])
    assert not torch.equal(after[30:], before[30:])


def test_prefill_in_two_parts_is_one_prefill(interpreter: Device) -> None:
    whole = packed((48,), prefix=0)
    second = replace(whole, q=whole.q[32:].contiguous(), q_lengths=(16,))
    assert torch.equal(prefill(second), prefill(whole)[32:])  # 32 is a multiple of the block


def test_a_nan_in_one_sequence_stays_there(interpreter: Device) -> None:
    inputs = packed((20, 20), prefix=0)
    before = prefill(inputs)
    assert inputs.v is not None
    inputs.v[20:] = torch.nan
    assert torch.equal(prefill(inputs)[:20], before[:20])


@pytest.mark.parametrize("together", [1, 2])
def test_the_order_of_blocks_changes_nothing(interpreter: Device, together: int) -> None:
    inputs = packed((17, 0, 1))
    config = replace(SMALL, heads_together=together)
    assert torch.equal(prefill(inputs, config), prefill(inputs))


DECODE_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"q": torch.zeros(3, 2, 3, 80)}, "q is torch.float32"),
    ({"q": torch.zeros(6, 3, 80)}, "q has 3 dimensions"),
    ({"kv_cache": torch.zeros(9, 16, 72).bfloat16()}, r"kv_cache is \(9, 16, 72\)"),
    ({"kv_cache": torch.zeros(9, 16, 80).half()}, "kv_cache is torch.float16"),
    ({"kv_cache": torch.zeros(9, 16, 160)[..., ::2].bfloat16()[..., ::1].transpose(0, 1)},
     "kv_cache"),
    ({"block_table": torch.zeros(3, 5)}, "block_table is torch.float32"),
    ({"block_table": torch.zeros(2, 5, dtype=torch.int32)}, r"block_table is \(2, 5\)"),
    ({"seqlens": torch.zeros(3, dtype=torch.int64)}, "seqlens is torch.int64"),
    ({"seqlens": torch.zeros(3, dtype=torch.int32, device="meta")}, "seqlens is on meta"),
    ({"kv_lora": 72}, "kv_lora is 72"),
    ({"kv_lora": 512}, "the rope width is -432"),
    ({"longest": 81}, "longest is 81; a row of block_table holds 80 tokens"),
    ({"config": MlaDecodeConfig(kernel="hopper")}, "no Hopper kernel here: cpu is no NVIDIA GPU"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), DECODE_MISTAKES)
def test_a_decode_that_does_not_fit_is_refused(
    interpreter: Device, change: dict[str, Any], words: str
) -> None:
    inputs = step()
    given = {
        "q": inputs.q, "kv_cache": inputs.kv_cache, "block_table": inputs.block_table,
        "seqlens": inputs.seqlens, "kv_lora": inputs.kv_lora, "scale": inputs.scale,
    }  # fmt: skip
    with pytest.raises(ValueError, match=words):
        mla_decode(**given | change)


PREFILL_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"q": torch.zeros(43, 3, 80)}, "q is torch.float32"),
    ({"q": torch.zeros(43, 3, 100).bfloat16()}, "q is 100 wide"),
    ({"k": torch.zeros(57, 3, 80).bfloat16()}, r"k is \(57, 3, 80\); expected \(58, 3, 80\)"),
    ({"k": torch.zeros(58, 2, 80).bfloat16()}, r"k is \(58, 2, 80\)"),
    ({"v": torch.zeros(58, 3, 72).bfloat16()}, "v is 72 wide"),
    ({"v": torch.zeros(58, 64, 3).bfloat16().transpose(1, 2)}, "v has strides"),
    ({"queries": Batch.from_lengths([42], "cpu")}, "the batch holds 42 queries, q 43"),
    ({"queries": Batch.from_lengths([43], "cpu")}, "1 sequences of queries, 3 of keys"),
    ({"keys": Batch.from_lengths([45, 5, 8], "meta")}, "cu_seqlens of keys is on meta"),
    ({"config": replace(SMALL, kernel="hopper")}, "no Hopper kernel here: cpu is no NVIDIA GPU"),
]


@pytest.mark.parametrize(("change", "words"), PREFILL_MISTAKES)
def test_a_prefill_that_does_not_fit_is_refused(
    interpreter: Device, change: dict[str, Any], words: str
) -> None:
    inputs = packed()
    given = {
        "q": inputs.q, "k": inputs.k, "v": inputs.v, "scale": inputs.scale,
        "queries": Batch.from_lengths(inputs.q_lengths, CPU),
        "keys": Batch.from_lengths(inputs.kv_lengths, CPU),
    }  # fmt: skip
    with pytest.raises(ValueError, match=words):
        mla_prefill(**given | change)
