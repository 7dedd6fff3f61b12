"""What the Triton backends of MLA take and refuse; whether they are right is in tests/kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.ops.backends_triton_mla import _batch
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.mla_cases import prefill_cases
from benchx_kernels.batch import Batch

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


@pytest.mark.parametrize("arch", ["sm_89", "sm_120"])
def test_decode_of_many_rows_is_refused_where_shared_memory_is_too_small(arch: str) -> None:
    small = replace(H200, arch=arch)
    assert refusal("mla_decode", small, heads=16) == ""
    assert "needs 112640 bytes of shared memory" in refusal("mla_decode", small, heads=32)
    told = refusal("mla_decode", small, heads=96)
    assert told.startswith(Outcome.UNSUPPORTED.name)
    assert told.endswith(f"139264 bytes of shared memory; a program on {arch} has at most 101376")
    fp8 = refusal("mla_decode", small, heads=96, cache_dtype="float8_e4m3")
    assert "needs 108544 bytes" in fp8
    assert refusal("mla_decode", small, heads=96, kv_lora=256) == ""
    assert refusal("mla_prefill", small) == ""


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "sm_89", "sm_120"])
def test_a_scan_of_256_channels_is_refused_where_shared_memory_is_too_small(arch: str) -> None:
    small = replace(H200, arch=arch)
    wide = {"seqlens": "64", "heads": 2, "head_dim": 256, "value_dim": 256}
    for operator in ("kda_prefill", "delta_rule", "gated_delta_rule"):
        axes = OPERATORS.get(operator).axes
        known = {name: axis.default for name, axis in axes.items() if axis.default is not None}
        backend = backends_of(operator).get("triton")
        found = backend.unavailable(known | wide, small)
        assert found is not None
        assert "the scan with K = 256 needs" in found.reason
        assert backend.unavailable(known | wide, H200) is None
        assert backend.unavailable(known | wide | {"head_dim": 128}, small) is None


@pytest.mark.parametrize("heads", [16, 32, 96])
@pytest.mark.parametrize("cached", ["auto", "float8_e4m3"])
def test_nothing_is_refused_for_shared_memory_on_hopper(heads: int, cached: str) -> None:
    assert refusal("mla_decode", H200, heads=heads, cache_dtype=cached) == ""


def test_layers_with_equal_lengths_share_their_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one copies to the device and waits for it: a prefill of many layers does so once."""
    made: list[tuple[int, ...]] = []
    make = Batch.from_lengths

    def counting(lengths: tuple[int, ...], device: torch.device) -> Batch:
        made.append(lengths)
        return make(lengths, device)

    monkeypatch.setattr(Batch, "from_lengths", counting)
    operator = OPERATORS.get("mla_prefill")
    case = next(case for case in prefill_cases(operator) if case.name == "tail of one token")
    inputs = case.make(operator, torch.device("cpu"))
    _batch.cache_clear()
    for _ in range(3):
        backends_of("mla_prefill").get("triton").prepare(inputs)
    assert made == [(128, 1)]
