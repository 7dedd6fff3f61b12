"""Our own Triton kernels for MLA (`benchx_kernels`).

With projections the products with W_UK and W_UV are torch's, before and after the kernel: what a
model that calls it pays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.ops.backends_triton_linear import TritonForm, triton_absent
from benchx.ops.base import Unavailable, register_backend
from benchx.ops.mla_inputs import DecodeInputs, Expanded, PrefillInputs
from benchx.ops.packages import unsupported
from benchx.ops.shared_memory import latent_problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from benchx_kernels._mla_configs import MlaDecodeConfig
    from benchx_kernels.batch import Batch

DTYPES = ("bfloat16", "float16")
LATENT_WIDTHS = (64, 128, 256, 512)
ROPE_WIDTHS = (0, 16, 32, 64)
EXPANDED_WIDTHS = (64, 128)
"""Widths that the kernels are written for."""


@dataclass(frozen=True, kw_only=True)
class TritonMlaDecode(TritonForm):
    """Split attention on the paged latent cache and a merge of the splits.

    Attributes:
        config: How the work is cut; None lets the kernel pick.
    """

    operator: str = "mla_decode"
    config: MlaDecodeConfig | None = None

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Skipped without a GPU; unsupported for widths and dtypes that no kernel has."""
        widths = (params["kv_lora"], params["rope_dim"])
        fits = widths[0] in LATENT_WIDTHS and widths[1] in ROPE_WIDTHS
        reason = (
            f"latent and rope are {widths} wide; the kernels have {LATENT_WIDTHS}, {ROPE_WIDTHS}"
        )
        cached = params["cache_dtype"]
        converts = cached != "float8_e4m3" or _has_e4m3(device)
        too_large = latent_problem(params, device.arch) if self.config is None else None
        return unsupported(
            (fits, reason),
            _dtype_limit(params),
            (
                cached in ("auto", params["dtype"], "float8_e4m3"),
                f"the kernels read a cache of q's dtype or fp8 e4m3, not {cached}",
            ),
            (converts, f"{device.arch} has no fp8 e4m3; Triton converts it from sm_89 on"),
            (too_large is None, str(too_large)),
        ) or triton_absent(device)

    def prepare(self, inputs: DecodeInputs) -> PreparedCall:
        """Bind to inputs; the longest sequence's length is known to the host, as to a server."""
        from benchx_kernels.mla_decode import mla_decode
        from benchx_kernels.torch_mla import absorb, project_values

        longest, weights = max(inputs.lengths), inputs.weights

        def attend(q: Tensor) -> Tensor:
            out: Tensor = mla_decode(
                q, inputs.kv_cache, inputs.block_table, inputs.seqlens,
                kv_lora=inputs.kv_lora, scale=inputs.scale, longest=longest, config=self.config,
            )  # fmt: skip
            return out

        def run() -> Mapping[str, Tensor]:
            if weights is None:
                return {"o": attend(inputs.q)}
            shape = inputs.q.shape[:3]
            absorbed = absorb(inputs.q.flatten(0, 1), weights.w_uk)
            latent = attend(absorbed.view(*shape, -1))
            return {"o": project_values(latent.flatten(0, 1), weights.w_uv).view(*shape, -1)}

        return PreparedCall(run=run)


@dataclass(frozen=True, kw_only=True)
class TritonMlaPrefill(TritonForm):
    """One pass over expanded keys and values."""

    operator: str = "mla_prefill"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Skipped without a GPU; unsupported for widths and dtypes that no kernel has."""
        widths = (params["nope_dim"], params["rope_dim"], params["value_dim"])
        wide = {widths[0], widths[2]} <= set(EXPANDED_WIDTHS) and widths[1] in ROPE_WIDTHS
        reason = (
            f"nope, rope and value are {widths} wide; "
            f"the kernels have {EXPANDED_WIDTHS}, {ROPE_WIDTHS}, {EXPANDED_WIDTHS}"
        )
        return unsupported((wide, reason), _dtype_limit(params)) or triton_absent(device)

    def prepare(self, inputs: PrefillInputs) -> PreparedCall:
        """Bind to inputs; the batches are what every layer of a step shares."""
        from benchx_kernels.mla_prefill import mla_prefill
        from benchx_kernels.torch_mla import expand

        queries = _batch(inputs.q_lengths, inputs.device)
        keys = _batch(inputs.kv_lengths, inputs.device)
        given = inputs.operands

        def run() -> Mapping[str, Tensor]:
            if isinstance(given, Expanded):
                k, v = given.k, given.v
            else:
                k, v = expand(given.c_kv, given.k_pe, given.weights.w_uk, given.weights.w_uv)
            scale = inputs.scale
            return {"o": mla_prefill(inputs.q, k, v, queries=queries, keys=keys, scale=scale)}

        return PreparedCall(run=run)


@lru_cache(maxsize=64)
def _batch(lengths: tuple[int, ...], device: torch.device) -> Batch:
    """One for all layers and calls with these lengths: making it copies to the device and waits."""
    from benchx_kernels.batch import Batch

    return Batch.from_lengths(lengths, device)


def _dtype_limit(params: Params) -> tuple[bool, str]:
    return params["dtype"] in DTYPES, f"the kernels take {DTYPES}, not {params['dtype']}"


def _has_e4m3(device: Device) -> bool:
    return not device.arch.startswith("sm_") or int(device.arch.removeprefix("sm_")) >= 89


register_backend(TritonMlaDecode())
register_backend(TritonMlaPrefill())
