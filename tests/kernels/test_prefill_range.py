"""Our prefill at every tail of a sequence, and what the range and bits of fp16 must hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.device import Device
from benchx.measure.correctness import judge
from benchx.ops.backends_triton_linear import gate_of
from benchx.ops.base import OPERATORS
from benchx.ops.linear_cases import correlated_keys, identical_keys
from benchx.ops.linear_inputs import LinearInputs
from benchx_kernels._configs import PrefillConfig, scan_cut
from benchx_kernels.batch import Batch
from benchx_kernels.chunk_prefill import States, chunk_prefill

# numpy reports the overflows above the diagonal, which are masked.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BOUND = 0.005
WIDTH = 64
CUT = scan_cut(WIDTH, WIDTH, amd=False)
SEGMENTS = replace(CUT, segment_chunks=1)
# One token, one less and one more than a chunk, empty ones, and whole chunks only.
TAILS = ("1", "31+0+33", "64+96", "65+17+0+128")


def made(name: str = "kda_prefill", **axes: int | str | bool) -> LinearInputs:
    """Inputs of one narrow head."""
    operator = OPERATORS.get(name)
    known = {n: axis.default for n, axis in operator.axes.items() if axis.default is not None}
    point = known | {"heads": 1, "head_dim": WIDTH, "value_dim": WIDTH} | axes
    inputs = operator.make_inputs(point, seed=5, device=torch.device("cpu"))
    assert isinstance(inputs, LinearInputs)
    return inputs


def found_wrong(inputs: LinearInputs, config: PrefillConfig) -> str | None:
    """Why the outputs of a config are wrong by more than the bound, or None."""
    operator = OPERATORS.get("kda_prefill")
    shape = (len(inputs.lengths), *inputs.v.shape[1:], inputs.k.shape[2])
    final = torch.full(shape, float("nan"), dtype=inputs.state_dtype)
    o = chunk_prefill(
        inputs.q, inputs.k, inputs.v, inputs.beta_logits, gate=gate_of(inputs),
        batch=Batch(inputs.cu_seqlens, inputs.lengths), scale=inputs.scale,
        qk_l2norm=inputs.qk_l2norm, config=config,
        states=States(initial=inputs.initial_state, final=final),
    )  # fmt: skip
    outputs = {"o": o, "final_state": final}
    return judge(outputs, operator.output_specs(inputs), operator.reference(inputs), BOUND).reason


@pytest.mark.parametrize("config", [CUT, SEGMENTS], ids=["whole", "segments"])
@pytest.mark.parametrize("seqlens", TAILS)
def test_every_tail_is_right(interpreter: Device, seqlens: str, config: PrefillConfig) -> None:
    assert found_wrong(made(seqlens=seqlens), config) is None


def test_segments_of_heads_too_wide_for_the_prefix_are_refused(interpreter: Device) -> None:
    cut = replace(scan_cut(256, 64, amd=False), segment_chunks=1)
    with pytest.raises(ValueError, match="segments with K of 256"):
        found_wrong(made(seqlens="64", head_dim=256), cut)


@pytest.mark.parametrize(
    ("operator", "axes"),
    [
        ("kda_prefill", {"gate": "softplus"}),
        ("kda_prefill", {"qk_l2norm": False}),
        ("kda_prefill", {"dtype": "float16"}),
        ("gated_delta_rule", {}),
        ("linear_attention", {}),
    ],
    ids=str,
)
def test_every_form_of_the_family_can_be_cut_into_segments(
    interpreter: Device, operator: str, axes: dict[str, str | bool]
) -> None:
    assert found_wrong(made(operator, seqlens="97", **axes), SEGMENTS) is None


@pytest.mark.slow
@pytest.mark.parametrize("config", [CUT, SEGMENTS], ids=["whole", "segments"])
@pytest.mark.parametrize("keys", [identical_keys, correlated_keys])
@pytest.mark.parametrize("size", [0.0, 0.1, 1.0])
def test_a_thousand_equal_keys_without_decay_stay_within_the_bound(
    interpreter: Device, keys: object, config: PrefillConfig, size: float
) -> None:
    assert callable(keys)
    alike = keys(made(seqlens="1024"))
    noise = torch.randn(alike.beta_logits.shape, generator=torch.Generator().manual_seed(1))
    # beta near one, but not the same everywhere: equal roundings would cancel.
    uneven = replace(
        alike,
        beta_logits=alike.beta_logits + noise.to(alike.beta_logits.dtype),
        initial_state=alike.initial_state * size,
    )
    assert found_wrong(uneven, config) is None


@pytest.mark.parametrize("power", [-100, 100])
def test_values_beyond_the_range_of_fp16_lose_nothing(interpreter: Device, power: int) -> None:
    inputs = made(seqlens="70")
    large = replace(
        inputs, v=inputs.v * 2.0**power, initial_state=inputs.initial_state * 2.0**power
    )
    ours = {}
    for name, given in (("plain", inputs), ("scaled", large)):
        state = torch.empty_like(given.initial_state)
        o = chunk_prefill(
            given.q, given.k, given.v, given.beta_logits, gate=gate_of(given),
            batch=Batch(given.cu_seqlens, given.lengths), scale=given.scale,
            states=States(initial=given.initial_state, final=state),
        )  # fmt: skip
        ours[name] = (o, state)
    for plain, scaled in zip(ours["plain"], ours["scaled"], strict=True):
        assert torch.equal(plain * 2.0**power, scaled)


@pytest.mark.parametrize("config", [CUT, SEGMENTS], ids=["whole", "segments"])
def test_values_that_grow_by_a_factor_of_2_to_the_80_stay_right(
    interpreter: Device, config: PrefillConfig
) -> None:
    inputs = made(seqlens="200")
    v = inputs.v.clone()
    v[:64] *= 2.0**-40
    v[128:] *= 2.0**40
    assert found_wrong(replace(inputs, v=v), config) is None
