"""Our MLA kernels compiled, on a GPU: every variant by name, and what needs much memory or time.

What the default configuration does on the adversarial cases is in `tests/ops/test_mla_backends.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.device import Device
from benchx.measure.device import list_devices
from benchx.measure.memory import peak_extra_bytes
from benchx.ops.backends_triton_mla import TritonMlaDecode
from benchx.ops.base import OPERATORS
from benchx.ops.conformance import offences
from benchx.ops.mla_cases import DecodeCase, decode_cases
from benchx.ops.mla_draw import make_decode_inputs, make_prefill_inputs
from benchx.ops.mla_inputs import DecodeInputs, MlaShape, PrefillInputs
from benchx_kernels._mla_configs import MlaDecodeConfig, MlaPrefillConfig, no_hopper
from benchx_kernels.batch import Batch
from benchx_kernels.mla_decode import mla_decode
from benchx_kernels.mla_prefill import mla_prefill

pytestmark = pytest.mark.gpu
DECODE = {
    "portable, 16 rows": MlaDecodeConfig(block_m=16, block_n=32, warps=4, stages=3, resident=2),
    "portable, 64 rows": MlaDecodeConfig(block_m=64, block_n=32, warps=8),
    "hopper": MlaDecodeConfig(kernel="hopper"),
}
PREFILL = {
    "portable": MlaPrefillConfig(stages=3),
    "hopper": MlaPrefillConfig(kernel="hopper", block_m=128, block_n=128),
}
CASES = {case.name: case for case in decode_cases(OPERATORS.get("mla_decode"))}
SPLITS_AGREE = 3e-3
"""Twice the rounding of one bf16 output: relative rms of two roundings of the same value."""
RUNS = 20


@pytest.fixture
def device() -> Device:
    found = list_devices()[0]
    if not found.is_gpu:
        pytest.skip("no GPU")
    return found


def on(device: Device, config: MlaDecodeConfig | MlaPrefillConfig) -> torch.device:
    """The device, if this configuration's kernel runs there."""
    place = torch.device(device.torch_device)
    reason = no_hopper(place)
    if config.kernel != "portable" and reason is not None:
        pytest.skip(reason)
    return place


def shape(heads: int = 96, **changed: int) -> MlaShape:
    base = MlaShape(
        heads=heads, nope_dim=128, rope_dim=64, value_dim=128, kv_lora=512, dtype="bfloat16",
        projections=False,
    )  # fmt: skip
    return replace(base, **changed)


def step(place: torch.device, lengths: tuple[int, ...], heads: int = 96) -> DecodeInputs:
    return make_decode_inputs(
        shape(heads), lengths, tokens=1, page_size=64, cache_dtype="bfloat16", seed=5, device=place
    )


def decode(inputs: DecodeInputs, config: MlaDecodeConfig) -> torch.Tensor:
    return mla_decode(
        inputs.q, inputs.kv_cache, inputs.block_table, inputs.seqlens,
        kv_lora=inputs.kv_lora, scale=inputs.scale, longest=max(inputs.lengths), config=config,
    )  # fmt: skip


def prefill(inputs: PrefillInputs, config: MlaPrefillConfig) -> torch.Tensor:
    return bound_prefill(inputs, config)()


def bound_prefill(inputs: PrefillInputs, config: MlaPrefillConfig) -> Callable[[], torch.Tensor]:
    """The call by itself: the boundaries of its batches lie on the device before it begins."""
    assert inputs.k is not None
    assert inputs.v is not None
    return partial(
        mla_prefill, inputs.q, inputs.k, inputs.v, scale=inputs.scale, config=config,
        queries=Batch.from_lengths(inputs.q_lengths, inputs.device),
        keys=Batch.from_lengths(inputs.kv_lengths, inputs.device),
    )  # fmt: skip


def ratio(found: torch.Tensor, reference: torch.Tensor) -> float:
    error = found.double() - reference.double()
    return float(error.square().mean().sqrt() / reference.double().square().mean().sqrt())


def named(configs: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("config", list(configs.values()), ids=list(configs))


@named(DECODE)
@pytest.mark.parametrize("case", list(CASES.values()), ids=list(CASES))
@pytest.mark.parametrize("splits", [1, 3])
def test_every_variant_is_right_on_the_adversarial_cases(
    device: Device, config: MlaDecodeConfig, case: DecodeCase, splits: int
) -> None:
    place = on(device, config)
    backend = TritonMlaDecode(config=replace(config, splits=splits))
    refused = backend.unavailable(case.params, device)
    if refused is not None:
        pytest.skip(str(refused))
    paged = int(case.params["page_size"]) % 64 == 0 and case.params["cache_dtype"] == "auto"
    if config.kernel != "portable" and not paged:
        pytest.skip("the Hopper kernels take pages of 64 tokens in the dtype of q")
    operator = OPERATORS.get("mla_decode")
    assert offences(operator, backend, case.make(operator, place), device) == []


@named(DECODE)
@pytest.mark.parametrize("heads", [12, 96])
def test_any_number_of_splits_agrees_with_one(
    device: Device, config: MlaDecodeConfig, heads: int
) -> None:
    """Lengths from none to 20,000, so that some splits of each step are idle."""
    inputs = step(on(device, config), (20000, 0, 65, 1, 700), heads)
    whole = decode(inputs, replace(config, splits=1))
    apart = {n: ratio(decode(inputs, replace(config, splits=n)), whole) for n in range(2, 33)}
    assert {n: found for n, found in apart.items() if not found < SPLITS_AGREE} == {}


@named(DECODE)
@pytest.mark.parametrize("splits", [1, 7])
def test_a_decode_step_repeats_bit_for_bit(
    device: Device, config: MlaDecodeConfig, splits: int
) -> None:
    """An unordered copy or product shows as a run that differs."""
    inputs = step(on(device, config), (3000, 65, 0, 1500) * 40)
    config = replace(config, splits=splits)
    first = decode(inputs, config)
    assert all(torch.equal(decode(inputs, config), first) for _ in range(RUNS))


@named(DECODE)
def test_cached_rows_beyond_two_to_the_31_elements_are_reached(
    device: Device, config: MlaDecodeConfig
) -> None:
    """Page id times page size times width passes 2^31 (vllm and sglang wrapped there)."""
    inputs = step(on(device, config), (700,))
    pages, page_size, width = inputs.kv_cache.shape
    first = 2**31 // (page_size * width) + 1
    far = torch.empty(
        first + pages, page_size, width, dtype=torch.bfloat16, device=inputs.device
    )  # 4.3 GB
    far[first:] = inputs.kv_cache
    far[:pages] = torch.nan  # where a wrapped offset would read
    moved = replace(inputs, kv_cache=far, block_table=inputs.block_table + first)
    assert torch.equal(decode(moved, config), decode(inputs, config))


@named(PREFILL)
def test_prefill_rows_beyond_two_to_the_31_elements_are_reached(
    device: Device, config: MlaPrefillConfig
) -> None:
    """128 heads of 87,424 tokens, in short sequences; 14 GB."""
    place, heads = on(device, config), 128
    tokens = 64 * (2**31 // (heads * 192 * 64) + 2)
    lengths = (64,) * (tokens // 64)
    inputs = make_prefill_inputs(shape(heads), lengths, lengths, seed=5, device=place)
    assert inputs.k is not None
    assert inputs.v is not None
    whole = prefill(inputs, config)
    tail = replace(
        inputs, q=inputs.q[-128:].contiguous(), k=inputs.k[-128:].contiguous(),
        v=inputs.v[-128:].contiguous(), q_lengths=(64, 64), kv_lengths=(64, 64),
    )  # fmt: skip
    assert torch.equal(whole[-128:], prefill(tail, config))


@named(PREFILL)
def test_a_prefill_repeats_bit_for_bit(device: Device, config: MlaPrefillConfig) -> None:
    lengths, place = (3000, 65, 0, 1500), on(device, config)
    keys = [length + 300 for length in lengths]
    inputs = make_prefill_inputs(shape(16), lengths, keys, seed=5, device=place)
    first = prefill(inputs, config)
    assert all(torch.equal(prefill(inputs, config), first) for _ in range(RUNS))


@named(PREFILL)
def test_a_prefill_behind_its_first_part_is_the_rest_of_one_prefill(
    device: Device, config: MlaPrefillConfig
) -> None:
    """The second half of the queries on all keys; 1024 is a multiple of every block."""
    whole = make_prefill_inputs(shape(16), (2000,), (2000,), seed=5, device=on(device, config))
    rest = replace(whole, q=whole.q[1024:].contiguous(), q_lengths=(976,))
    assert torch.equal(prefill(rest, config), prefill(whole, config)[1024:])


@named(PREFILL)
def test_a_later_token_leaves_earlier_outputs_bit_equal(
    device: Device, config: MlaPrefillConfig
) -> None:
    inputs = make_prefill_inputs(shape(16), (900,), (900,), seed=5, device=on(device, config))
    before = prefill(inputs, config)
    assert inputs.k is not None
    assert inputs.v is not None
    inputs.k[700] += 1
    inputs.v[700] += 1
    after = prefill(inputs, config)
    assert torch.equal(after[:700], before[:700])
    assert not torch.equal(after[700:], before[700:])


@pytest.mark.parametrize("splits", [1, 8])
def test_a_decode_step_needs_its_partial_results_and_no_more(device: Device, splits: int) -> None:
    """fp32 [rows, splits, C] and one denominator each; nothing without splits."""
    heads, latent = 16, 512
    inputs = step(on(device, MlaDecodeConfig()), (5000,) * 8, heads)
    config = replace(DECODE["portable, 16 rows"], splits=splits)
    decode(inputs, config)
    found = peak_extra_bytes(lambda: decode(inputs, config), device)
    needed = 4 * 8 * heads * splits * (latent + 1) if splits > 1 else 0
    assert found is not None
    assert needed <= found <= needed + 2048  # the allocator rounds to 512 bytes


def test_a_prefill_needs_nothing_beside_its_output(device: Device) -> None:
    place = on(device, PREFILL["portable"])
    inputs = make_prefill_inputs(shape(16), (900,), (900,), seed=5, device=place)
    call = bound_prefill(inputs, PREFILL["portable"])
    call()
    assert peak_extra_bytes(call, device) == 0
