"""What the Triton backends of MLA take and refuse; whether they are right is in tests/kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.ops.base import OPERATORS, backends_of

H200 = Device(
    vendor="nvidia", torch_type="cuda", name="NVIDIA H200", index=0, count=1, arch="sm_90",
    memory_bytes=150 << 30, l2_bytes=60 << 20, compute_units=132,
)  # fmt: skip
CPU = replace(H200, vendor="cpu", torch_type="cpu", name="a processor", arch="x86_64")
POINTS: dict[str, Params] = {
    "mla_decode": {"heads": 96, "batch": 2, "context": 100},
    "mla_prefill": {"heads": 96, "seqlens": "17+5"},
}


def refusal(operator: str, device: Device = H200, **changed: Scalar) -> str:
    """Outcome and reason, or an empty string when the backend takes the point."""
    axes = OPERATORS.get(operator).axes
    known = {name: axis.default for name, axis in axes.items() if axis.default is not None}
    params = known | dict(POINTS[operator]) | changed
    found = backends_of(operator).get("triton").unavailable(params, device)
    return "" if found is None else f"{found.outcome.name}: {found.reason}"


@pytest.mark.parametrize("operator", POINTS)
def test_a_gpu_is_needed(operator: str) -> None:
    assert refusal(operator) == ""
    assert refusal(operator, CPU).startswith(Outcome.SKIPPED.name)


@pytest.mark.parametrize("operator", POINTS)
def test_projections_are_taken(operator: str) -> None:
    assert refusal(operator, projections=True) == ""


@pytest.mark.parametrize("operator", POINTS)
def test_fp32_is_refused(operator: str) -> None:
    found = refusal(operator, dtype="float32")
    assert found == "UNSUPPORTED: the kernels take ('bfloat16', 'float16'), not float32"


@pytest.mark.parametrize(
    ("operator", "changed"),
    [
        ("mla_decode", {"kv_lora": 72}),
        ("mla_decode", {"rope_dim": 24}),
        ("mla_prefill", {"nope_dim": 40}),
        ("mla_prefill", {"value_dim": 72}),
        ("mla_prefill", {"rope_dim": 24}),
    ],
)
def test_a_width_without_a_kernel_is_refused(operator: str, changed: dict[str, Scalar]) -> None:
    assert "the kernels have" in refusal(operator, **changed)


def test_an_fp8_cache_needs_a_gpu_that_converts_it() -> None:
    ampere = replace(H200, name="NVIDIA A100", arch="sm_80")
    assert refusal("mla_decode", cache_dtype="float8_e4m3") == ""
    assert "sm_80 has no fp8 e4m3" in refusal("mla_decode", ampere, cache_dtype="float8_e4m3")
    assert refusal("mla_decode", replace(ampere, arch="gfx942"), cache_dtype="float8_e4m3") == ""


def test_a_cache_of_another_width_than_q_is_refused() -> None:
    """A model point may name one, which the kernels would refuse in the middle of a run."""
    found = refusal("mla_decode", cache_dtype="float32")
    assert found == "UNSUPPORTED: the kernels read a cache of q's dtype or fp8 e4m3, not float32"
    assert refusal("mla_decode", dtype="float16", cache_dtype="float16") == ""


def test_the_record_says_which_sources_ran() -> None:
    provenance = backends_of("mla_decode").get("triton").provenance()
    assert provenance["package"] == "benchx_kernels"
    assert len(provenance["sha256"]) == 64
