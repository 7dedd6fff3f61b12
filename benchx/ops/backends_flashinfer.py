"""FlashInfer (`flashinfer-python`): paged MLA decode and ragged MLA prefill.

It compiles each kernel with nvcc on the first plan, which happens in `prepare`. A plan copies its
schedule to buffers that `run` only reads, so a call may be captured in a CUDA graph.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.ops.base import Unavailable, register_backend
from benchx.ops.mla_inputs import DecodeInputs, Expanded, PrefillInputs
from benchx.ops.packages import Package, unsupported

if TYPE_CHECKING:
    import torch

    from benchx.core.call import Tensors

PACKAGE = Package(
    module="flashinfer",
    distribution="flashinfer-python",
    tested="0.6.13",
    archs=("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"),
    hashed_files="*.cuh",
)
RUNTIME = Package(module="tvm_ffi", distribution="apache-tvm-ffi", tested="0.1.15.post2")
"""Loads what FlashInfer compiles; missing when it was installed without its dependencies."""

WORKSPACE_BYTES = 256 << 20
"""Room for partial results; its documentation recommends 128 MiB, long contexts take more."""

PREFILL_WIDTHS = ((192, 128), (128, 128), (64, 64), (256, 256))
"""(q and k, v) of the ragged kernels that FlashInfer builds and tests."""

HALVES = ("bfloat16", "float16")


@dataclass
class FlashInferDecode:
    """`BatchMLAPagedAttentionWrapper` on the parts of the cache's rows: no copy is made.

    Attributes:
        dispatched: What the last plan chose: `fa3` on Hopper, `fa2` elsewhere.
    """

    dispatched: str | None = None
    name: str = "flashinfer"
    operator: str = "mla_decode"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Unsupported: projections, other widths, fp32, an fp8 cache."""
        widths = (params["kv_lora"], params["rope_dim"])
        return unsupported(
            (not params["projections"], "FlashInfer starts from absorbed q: no projections"),
            (widths == (512, 64), "FlashInfer's paged MLA is built for kv_lora 512 + rope 64"),
            (params["dtype"] in HALVES, f"FlashInfer takes no {params['dtype']}"),
            (
                params["cache_dtype"] in ("auto", params["dtype"]),
                "FlashInfer's paged MLA reads a cache of q's dtype",
            ),
        ) or _absent(device)

    def prepare(self, inputs: DecodeInputs) -> PreparedCall:
        """Compiles the kernel and plans the split of the lengths, as a server does once a step."""
        from flashinfer.mla import BatchMLAPagedAttentionWrapper

        wrapper = BatchMLAPagedAttentionWrapper(_workspace(inputs.device), backend="auto")
        wrapper.plan(**_decode_plan(inputs))
        self.dispatched = wrapper._backend
        q_nope, q_pe = _split(inputs.q.flatten(0, 1), inputs.kv_lora)
        ckv, kpe = _split(inputs.kv_cache, inputs.kv_lora)

        def run() -> Tensors:
            out = wrapper.run(q_nope, q_pe, ckv, kpe)
            return {"o": out.view(*inputs.q.shape[:3], inputs.kv_lora)}

        return PreparedCall(run=run)

    def provenance(self) -> Mapping[str, Any]:
        """Package; the hash of the sources it compiled; which of its kernels ran."""
        return PACKAGE.provenance() | {"dispatched": self.dispatched}


@dataclass
class FlashInferPrefill:
    """`BatchPrefillWithRaggedKVCacheWrapper`, causal and aligned to the end.

    Attributes:
        dispatched: What the last plan chose: `fa3` on Hopper, `fa2` elsewhere.
    """

    dispatched: str | None = None
    name: str = "flashinfer"
    operator: str = "mla_prefill"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Unsupported: projections, other widths, fp32."""
        widths = (int(params["nope_dim"]) + int(params["rope_dim"]), params["value_dim"])
        built = ", ".join(f"{qk}/{value}" for qk, value in PREFILL_WIDTHS)
        return unsupported(
            (not params["projections"], "FlashInfer starts from expanded keys: no projections"),
            (widths in PREFILL_WIDTHS, f"FlashInfer builds ragged prefill for q/v widths {built}"),
            (params["dtype"] in HALVES, f"FlashInfer takes no {params['dtype']}"),
        ) or _absent(device)

    def prepare(self, inputs: PrefillInputs) -> PreparedCall:
        """Compiles the kernel and plans the tiles of the lengths."""
        from flashinfer import BatchPrefillWithRaggedKVCacheWrapper

        given = inputs.operands
        assert isinstance(given, Expanded)
        wrapper = BatchPrefillWithRaggedKVCacheWrapper(
            _workspace(inputs.device), "NHD", backend="auto"
        )
        wrapper.plan(
            qo_indptr=inputs.cu_seqlens_q,
            kv_indptr=inputs.cu_seqlens_k,
            num_qo_heads=inputs.q.shape[1],
            num_kv_heads=given.k.shape[1],
            head_dim_qk=inputs.q.shape[2],
            head_dim_vo=given.v.shape[2],
            causal=True,
            sm_scale=inputs.scale,
            q_data_type=inputs.q.dtype,
            kv_data_type=given.k.dtype,
        )
        self.dispatched = wrapper._backend
        return PreparedCall(run=lambda: {"o": wrapper.run(inputs.q, given.k, given.v)})

    def provenance(self) -> Mapping[str, Any]:
        """Package; the hash of the sources it compiled; which of its kernels ran."""
        return PACKAGE.provenance() | {"dispatched": self.dispatched}


def _absent(device: Device) -> Unavailable | None:
    return PACKAGE.absent(device) or RUNTIME.absent(device) or _compiler_problem()


def _compiler_problem() -> Unavailable | None:
    """FlashInfer looks for nvcc in the same places; a wheel of compiled kernels spares it."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    compiled = find_spec("flashinfer_jit_cache") is not None
    if compiled or shutil.which("nvcc") or Path(home, "bin", "nvcc").exists():
        return None
    return Unavailable(
        outcome=Outcome.SKIPPED,
        reason=f"FlashInfer compiles its kernels with nvcc, found neither on PATH nor in {home}",
    )


@cache
def _workspace(device: torch.device) -> torch.Tensor:
    """One for all calls on a device: they run one after the other on its stream."""
    import torch

    return torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


def _decode_plan(inputs: DecodeInputs) -> dict[str, Any]:
    """Lengths and pages as index pointers; int32, on the host but for the page ids."""
    import torch

    counts = [-(-length // inputs.page_size) for length in inputs.lengths]
    pages = [row[:count] for row, count in zip(inputs.block_table, counts, strict=True)]
    starts = [batch * inputs.tokens for batch in range(len(counts) + 1)]
    return {
        "qo_indptr": torch.tensor(starts, dtype=torch.int32),
        "kv_indptr": torch.tensor([0, *accumulate(counts)], dtype=torch.int32),
        "kv_indices": torch.cat(pages),
        "kv_len_arr": torch.tensor(list(inputs.lengths), dtype=torch.int32),
        "num_heads": inputs.q.shape[2],
        "head_dim_ckv": inputs.kv_lora,
        "head_dim_kpe": inputs.q.shape[3] - inputs.kv_lora,
        "page_size": inputs.page_size,
        "causal": inputs.tokens > 1,
        "sm_scale": inputs.scale,
        "q_data_type": inputs.q.dtype,
        "kv_data_type": inputs.kv_cache.dtype,
    }


def _split(rows: torch.Tensor, kv_lora: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the latent and the rope part."""
    return rows[..., :kv_lora], rows[..., kv_lora:]


register_backend(FlashInferDecode())
register_backend(FlashInferPrefill())
