"""The adapters of FlashMLA and FlashInfer against stand-ins with those packages' signatures.

A stand-in computes with the reference from the arguments it is given, so an adapter that passes
on the wrong lengths, pages, parts or scale returns the wrong output.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.measure.device import list_devices
from benchx.ops import backends_flashinfer
from benchx.ops.base import OPERATORS, Unavailable, backends_of
from benchx.ops.conformance import offences
from benchx.ops.mla_cases import DecodeCase, PrefillCase, decode_cases, prefill_cases
from benchx_kernels.reference_mla import causal_attention, paged_latent_decode

CPU = list_devices()[-1]
H200 = Device(
    vendor="nvidia", torch_type="cuda", name="NVIDIA H200", index=0, count=1, arch="sm_90",
    memory_bytes=150 << 30, l2_bytes=60 << 20, compute_units=132,
)  # fmt: skip
DECODE, PREFILL = OPERATORS.get("mla_decode"), OPERATORS.get("mla_prefill")
FLASHMLA = backends_of("mla_decode").get("flashmla")
FI_DECODE = backends_of("mla_decode").get("flashinfer")
FI_PREFILL = backends_of("mla_prefill").get("flashinfer")


def decode(**changed: Scalar) -> Params:
    base = {"heads": 12, "batch": 3, "context": 100}
    return {name: axis.default for name, axis in DECODE.axes.items()} | base | changed


def prefill(**changed: Scalar) -> Params:
    base = {"heads": 12, "seqlens": "100"}
    return {name: axis.default for name, axis in PREFILL.axes.items()} | base | changed


def install(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    for member, value in members.items():
        setattr(module, member, value)
    monkeypatch.setitem(sys.modules, name, module)
    return module


# FlashMLA.


@dataclass
class FlashMlaStandIn:
    """`flash_mla` 1.0.0: signatures of its interface, limits of its dense decode entry."""

    schedules: list[object] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def get_mla_metadata(self) -> tuple[object, None]:
        self.schedules.append(object())
        return self.schedules[-1], None

    def flash_mla_with_kvcache(
        self,
        q: Tensor,
        k_cache: Tensor,
        block_table: Tensor,
        cache_seqlens: Tensor,
        head_dim_v: int,
        tile_scheduler_metadata: object,
        num_splits: None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        assert k_cache.dtype == q.dtype
        assert q.shape[3] == k_cache.shape[3] == 576
        assert k_cache.shape[1:3] == (64, 1)
        assert block_table.dtype == cache_seqlens.dtype == torch.int32
        assert causal or q.shape[1] == 1
        assert softmax_scale is not None
        self.calls.append({"schedule": tile_scheduler_metadata, "k_cache": k_cache})
        out = paged_latent_decode(
            q, k_cache[:, :, 0], block_table, lengths=cache_seqlens.tolist(), kv_lora=head_dim_v,
            scale=softmax_scale,
        )  # fmt: skip
        return out.to(q.dtype), torch.zeros(q.shape[0], q.shape[2], q.shape[1])


@pytest.fixture
def flash_mla(monkeypatch: pytest.MonkeyPatch) -> FlashMlaStandIn:
    stand_in = FlashMlaStandIn()
    install(
        monkeypatch,
        "flash_mla",
        get_mla_metadata=stand_in.get_mla_metadata,
        flash_mla_with_kvcache=stand_in.flash_mla_with_kvcache,
    )
    return stand_in


def able(backend: Any, cases: Any) -> list[Any]:  # noqa: ANN401
    """The cases that the backend does not call unsupported."""
    return [
        pytest.param(case, id=case.name)
        for case in cases
        if (found := backend.unavailable(case.params, CPU)) is None
        or found.outcome is Outcome.SKIPPED
    ]


@pytest.mark.parametrize("case", able(FLASHMLA, decode_cases(DECODE)))
def test_flashmla_is_given_what_it_needs(flash_mla: FlashMlaStandIn, case: DecodeCase) -> None:
    assert offences(DECODE, FLASHMLA, case.make(DECODE, torch.device("cpu")), CPU) == []


def test_flashmla_keeps_a_schedule_of_its_own_for_every_set_of_inputs(
    flash_mla: FlashMlaStandIn,
) -> None:
    inputs = DECODE.make_inputs(decode(), seed=1, device=torch.device("cpu"))
    first, second = FLASHMLA.prepare(inputs), FLASHMLA.prepare(inputs)
    for call in (first, first, second):
        call.run()
    used = [call["schedule"] for call in flash_mla.calls]
    assert used == [flash_mla.schedules[0], flash_mla.schedules[0], flash_mla.schedules[1]]


def test_flashmla_reads_the_cache_where_it_is(flash_mla: FlashMlaStandIn) -> None:
    inputs = DECODE.make_inputs(decode(), seed=1, device=torch.device("cpu"))
    FLASHMLA.prepare(inputs).run()
    assert flash_mla.calls[0]["k_cache"].data_ptr() == inputs.kv_cache.data_ptr()


def outcome_of(found: Unavailable | None) -> Outcome | None:
    return found.outcome if found else None


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"projections": True}, "projections"),
        ({"rope_dim": 0}, "rope 64"),
        ({"kv_lora": 256}, "kv_lora 512"),
        ({"page_size": 16}, "pages of 64"),
        ({"dtype": "float32"}, "float32"),
        ({"cache_dtype": "float8_e4m3"}, "fp8"),
    ],
)
def test_what_flashmla_can_t_compute_is_unsupported_wherever_it_is_asked(
    changed: dict[str, Scalar], word: str, flash_mla: FlashMlaStandIn
) -> None:
    for device in (CPU, H200):
        found = FLASHMLA.unavailable(decode(**changed), device)
        assert found is not None
        assert found.outcome is Outcome.UNSUPPORTED
        assert word in found.reason


def test_flashmla_is_available_on_hopper_alone(flash_mla: FlashMlaStandIn) -> None:
    assert FLASHMLA.unavailable(decode(heads=3, tokens=2), H200) is None
    for device in (CPU, replace(H200, arch="sm_100"), replace(H200, arch="gfx942")):
        assert outcome_of(FLASHMLA.unavailable(decode(), device)) is Outcome.SKIPPED


@pytest.mark.parametrize(
    ("backend", "params", "module", "command"),
    [
        (FLASHMLA, decode(), "flash_mla",
         "pip install tokenspeed-flashmla==1.0.0.post20260615"),
        (FI_DECODE, decode(), "flashinfer", "pip install flashinfer-python==0.6.13"),
        (FI_PREFILL, prefill(), "flashinfer", "pip install flashinfer-python==0.6.13"),
    ],
    ids=["flashmla", "flashinfer decode", "flashinfer prefill"],
)  # fmt: skip
def test_a_missing_package_is_skipped_with_the_command_that_installs_it(
    backend: Any,  # noqa: ANN401
    params: Params,
    module: str,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchx.ops.packages.find_spec", lambda name: None)
    found = backend.unavailable(params, H200)
    assert outcome_of(found) is Outcome.SKIPPED
    assert found.install == command
    assert module not in sys.modules


# FlashInfer.


@dataclass
class PagedStandIn:
    """`flashinfer.mla.BatchMLAPagedAttentionWrapper` 0.6.13."""

    float_workspace_buffer: Tensor
    backend: str = "auto"
    _backend: str = field(default="fa3", init=False)

    def plan(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        kv_indices: Tensor,
        kv_len_arr: Tensor,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        use_profiler: bool = False,
    ) -> None:
        pointers = (qo_indptr, kv_indptr, kv_indices, kv_len_arr)
        assert {pointer.dtype for pointer in pointers} == {torch.int32}
        assert (head_dim_ckv, head_dim_kpe) == (512, 64)
        assert q_data_type == kv_data_type
        self.starts, self.page_starts, self.pages, self.lengths = (p.tolist() for p in pointers)
        self.heads, self.page_size, self.causal = num_heads, page_size, causal
        self.scale = sm_scale

    def run(self, q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor) -> Tensor:
        assert q_nope.shape[1] == q_pe.shape[1] == self.heads
        assert ckv_cache.shape[1] == kpe_cache.shape[1] == self.page_size
        q, cache = torch.cat([q_nope, q_pe], -1), torch.cat([ckv_cache, kpe_cache], -1)
        out = torch.empty_like(q_nope)
        for b, length in enumerate(self.lengths):
            pages = self.pages[self.page_starts[b] : self.page_starts[b + 1]]
            rows = cache[torch.tensor(pages, dtype=torch.long)].flatten(0, 1)[:length]
            tokens = slice(self.starts[b], self.starts[b + 1])
            assert self.causal or self.starts[b + 1] - self.starts[b] == 1
            out[tokens] = causal_attention(q[tokens], rows, rows[:, :512], scale=self.scale)
        return out


@dataclass
class RaggedStandIn:
    """`flashinfer.BatchPrefillWithRaggedKVCacheWrapper` 0.6.13."""

    float_workspace_buffer: Tensor
    kv_layout: str = "NHD"
    backend: str = "auto"
    _backend: str = field(default="auto", init=False)

    def plan(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        causal: bool = False,
        sm_scale: float | None = None,
        q_data_type: torch.dtype = torch.float16,
        kv_data_type: torch.dtype | None = None,
    ) -> None:
        assert causal
        assert num_qo_heads == num_kv_heads
        assert kv_data_type == q_data_type
        self.dtype, self.scale = q_data_type, sm_scale
        self.widths = (head_dim_qk, head_dim_vo)
        self.q_starts, self.k_starts = qo_indptr.tolist(), kv_indptr.tolist()
        self._backend = "fa3"

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert q.dtype == self.dtype
        assert self.scale is not None
        assert (q.shape[2], v.shape[2]) == self.widths
        out = torch.empty(*q.shape[:2], v.shape[2], dtype=q.dtype)
        for b in range(len(self.q_starts) - 1):
            queries = slice(self.q_starts[b], self.q_starts[b + 1])
            keys = slice(self.k_starts[b], self.k_starts[b + 1])
            out[queries] = causal_attention(q[queries], k[keys], v[keys], scale=self.scale)
        return out


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    mla = install(monkeypatch, "flashinfer.mla", BatchMLAPagedAttentionWrapper=PagedStandIn)
    install(monkeypatch, "flashinfer", mla=mla, BatchPrefillWithRaggedKVCacheWrapper=RaggedStandIn)
    install(monkeypatch, "tvm_ffi")
    monkeypatch.setattr(backends_flashinfer, "WORKSPACE_BYTES", 16)
    monkeypatch.setattr(backends_flashinfer.shutil, "which", lambda name: f"/cuda/bin/{name}")


@pytest.mark.usefixtures("flashinfer")
@pytest.mark.parametrize("case", able(FI_DECODE, decode_cases(DECODE)))
def test_flashinfer_decode_is_given_what_it_needs(case: DecodeCase) -> None:
    assert offences(DECODE, FI_DECODE, case.make(DECODE, torch.device("cpu")), CPU) == []


@pytest.mark.usefixtures("flashinfer")
@pytest.mark.parametrize("case", able(FI_PREFILL, prefill_cases(PREFILL)))
def test_flashinfer_prefill_is_given_what_it_needs(case: PrefillCase) -> None:
    assert offences(PREFILL, FI_PREFILL, case.make(PREFILL, torch.device("cpu")), CPU) == []


@pytest.mark.usefixtures("flashinfer")
def test_flashinfer_says_which_of_its_kernels_ran() -> None:
    device = torch.device("cpu")
    FI_PREFILL.prepare(PREFILL.make_inputs(prefill(), seed=1, device=device))
    assert FI_PREFILL.provenance()["dispatched"] == "fa3"


@pytest.mark.usefixtures("flashinfer")
@pytest.mark.parametrize(
    ("backend", "params", "word"),
    [
        (FI_DECODE, decode(projections=True), "projections"),
        (FI_DECODE, decode(rope_dim=0), "rope 64"),
        (FI_DECODE, decode(dtype="float32"), "float32"),
        (FI_DECODE, decode(cache_dtype="float8_e4m3"), "q's dtype"),
        (FI_PREFILL, prefill(projections=True), "projections"),
        (FI_PREFILL, prefill(value_dim=64), "192/128"),
        (FI_PREFILL, prefill(dtype="float32"), "float32"),
    ],
)
def test_what_flashinfer_can_t_compute_is_unsupported_wherever_it_is_asked(
    backend: Any,  # noqa: ANN401
    params: Params,
    word: str,
) -> None:
    for device in (CPU, H200):
        found = backend.unavailable(params, device)
        assert outcome_of(found) is Outcome.UNSUPPORTED
        assert word in found.reason


@pytest.mark.usefixtures("flashinfer")
def test_flashinfer_is_available_on_a_gpu_with_a_compiler() -> None:
    assert FI_DECODE.unavailable(decode(page_size=16), H200) is None
    assert FI_PREFILL.unavailable(prefill(rope_dim=0), H200) is None
    assert outcome_of(FI_PREFILL.unavailable(prefill(), CPU)) is Outcome.SKIPPED


@pytest.mark.usefixtures("flashinfer")
def test_flashinfer_without_a_compiler_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(backends_flashinfer.shutil, "which", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path_factory.mktemp("cuda")))
    found = FI_DECODE.unavailable(decode(), H200)
    assert outcome_of(found) is Outcome.SKIPPED
    assert "nvcc" in str(found)


@pytest.mark.usefixtures("flashinfer")
def test_flashinfer_without_its_runtime_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchx.ops.packages.find_spec", lambda name: None if name == "tvm_ffi" else object()
    )
    found = FI_DECODE.unavailable(decode(), H200)
    assert outcome_of(found) is Outcome.SKIPPED
    assert found is not None
    assert "apache-tvm-ffi" in (found.install or "")
