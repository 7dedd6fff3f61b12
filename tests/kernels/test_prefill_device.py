"""Our prefill compiled, on a GPU: every cut, every width, and what needs much memory or time.

What the default cut does on the adversarial cases is in `tests/ops/test_linear_backends.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.device import Device
from benchx.measure.correctness import judge
from benchx.measure.device import list_devices
from benchx.measure.memory import peak_extra_bytes
from benchx.ops.backends_triton_linear import gate_of
from benchx.ops.base import OPERATORS
from benchx.ops.linear_cases import correlated_keys, identical_keys
from benchx.ops.linear_inputs import LinearInputs
from benchx_kernels._configs import PrefillConfig, scan_cut
from benchx_kernels.batch import Batch
from benchx_kernels.chunk_prefill import States, chunk_prefill

pytestmark = pytest.mark.gpu
AMD = torch.version.hip is not None
DEFAULT = scan_cut(128, 128, amd=AMD)
CUTS = {
    "default": DEFAULT,
    "segments": replace(DEFAULT, segment_chunks=3),
    "whole values": replace(DEFAULT, block_v=128, warps=8),
    "two stages": replace(DEFAULT, stages=2),
    "128 registers": replace(DEFAULT, intra_registers=128),
}
BOUND = 0.005
RUNS = 20
MOST_OF_INPUTS = 1.5
BEYOND_INT32 = (100_000, 40_000)


@pytest.fixture
def device() -> Device:
    found = list_devices()[0]
    if not found.is_gpu:
        pytest.skip("no GPU")
    return found


def made(device: Device, **axes: int | str | bool) -> LinearInputs:
    operator = OPERATORS.get("kda_prefill")
    known = {n: axis.default for n, axis in operator.axes.items() if axis.default is not None}
    place = torch.device(device.torch_device)
    inputs = operator.make_inputs(known | {"heads": 3} | axes, seed=5, device=place)
    assert isinstance(inputs, LinearInputs)
    return inputs


def prefill(
    inputs: LinearInputs, config: PrefillConfig | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and final state."""
    shape = (len(inputs.lengths), *inputs.v.shape[1:], inputs.k.shape[2])
    final = torch.full(shape, float("nan"), dtype=inputs.state_dtype, device=inputs.device)
    o = chunk_prefill(
        inputs.q, inputs.k, inputs.v, inputs.beta_logits, gate=gate_of(inputs),
        batch=Batch(inputs.cu_seqlens, inputs.lengths), scale=inputs.scale,
        states=States(initial=inputs.initial_state, final=final), config=config,
    )  # fmt: skip
    return o, final


def found_wrong(inputs: LinearInputs, config: PrefillConfig | None) -> str | None:
    operator = OPERATORS.get("kda_prefill")
    o, final = prefill(inputs, config)
    specs = operator.output_specs(inputs)
    outputs = {"o": o, "final_state": final}
    return judge(outputs, specs, operator.reference(inputs), BOUND).reason


@pytest.mark.parametrize("config", CUTS.values(), ids=CUTS.keys())
def test_every_cut_is_right(device: Device, config: PrefillConfig) -> None:
    assert found_wrong(made(device, seqlens="700+65+0+1+64"), config) is None


@pytest.mark.parametrize("gate", ["bounded", "softplus", "log"])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_every_width_is_right(device: Device, width: int, gate: str) -> None:
    inputs = made(device, seqlens="300+33", head_dim=width, value_dim=width, gate=gate)
    assert found_wrong(inputs, scan_cut(width, width, amd=AMD)) is None


@pytest.mark.parametrize("gate", ["bounded", "softplus", "log"])
@pytest.mark.parametrize("width", [64, 128])
def test_segments_of_every_width_are_right(device: Device, width: int, gate: str) -> None:
    config = replace(scan_cut(width, width, amd=AMD), segment_chunks=3)
    inputs = made(device, seqlens="300+33", head_dim=width, value_dim=width, gate=gate)
    assert found_wrong(inputs, config) is None


@pytest.mark.parametrize("size", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("keys", [identical_keys, correlated_keys], ids=["identical", "correlated"])
@pytest.mark.parametrize("config", CUTS.values(), ids=CUTS.keys())
def test_a_thousand_equal_keys_without_decay_stay_within_the_bound(
    device: Device, config: PrefillConfig, keys: object, size: float
) -> None:
    assert callable(keys)
    alike = keys(made(device, seqlens="1024"))
    # beta near one, but not the same everywhere: equal roundings would cancel.
    noise = torch.randn_like(alike.beta_logits)
    uneven = replace(
        alike,
        beta_logits=alike.beta_logits + noise,
        initial_state=alike.initial_state * size,
    )
    assert found_wrong(uneven, config) is None


@pytest.mark.parametrize("config", CUTS.values(), ids=CUTS.keys())
def test_twenty_runs_are_bit_equal(device: Device, config: PrefillConfig) -> None:
    inputs = made(device, seqlens="1300+547+63", heads=32)
    o, final = prefill(inputs, config)
    for _ in range(RUNS - 1):
        again, state = prefill(inputs, config)
        assert torch.equal(again, o)
        assert torch.equal(state, final)


@pytest.mark.slow
def test_a_sequence_beyond_2_to_the_31_elements_is_as_if_alone(device: Device) -> None:
    if device.memory_bytes < 100 * 2**30:
        pytest.skip("needs 100 GiB of device memory")
    lengths = "+".join(map(str, BEYOND_INT32))
    inputs = made(device, seqlens=lengths, heads=128, initial_state=False)
    assert inputs.q.numel() > 2**31
    o, final = prefill(inputs, DEFAULT)
    first = BEYOND_INT32[0]
    alone = replace(
        inputs, q=inputs.q[first:], k=inputs.k[first:], v=inputs.v[first:], g=inputs.g[first:],
        beta_logits=inputs.beta_logits[first:], lengths=BEYOND_INT32[1:],
        cu_seqlens=inputs.cu_seqlens[1:] - first,
    )  # fmt: skip
    expected, state = prefill(alone, DEFAULT)
    assert torch.equal(o[first:], expected)
    assert torch.equal(final[1:], state)


@pytest.mark.parametrize(("heads", "seqlens"), [(96, "8192"), (12, "65536"), (32, "3000+5000")])
def test_extra_memory_is_at_most_one_and_a_half_inputs(
    device: Device, heads: int, seqlens: str
) -> None:
    inputs = made(device, heads=heads, seqlens=seqlens)
    prefill(inputs, None)
    extra = peak_extra_bytes(lambda: prefill(inputs, None), device)
    given = (inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta_logits, inputs.initial_state)
    assert extra is not None
    assert extra <= MOST_OF_INPUTS * sum(x.nbytes for x in given)
