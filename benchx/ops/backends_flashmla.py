"""FlashMLA (`flash_mla`, wheel `tokenspeed-flashmla`): dense MLA decode on Hopper.

Its dense decode kernel is compiled for one shape (latent 512, rope 64, pages of 64) and for
sm_90 alone; its dense prefill is for Blackwell only, so there is no prefill backend here.
Empty sequences and block-table entries out of range are within its own tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.ops.base import Unavailable, register_backend
from benchx.ops.mla_inputs import DecodeInputs
from benchx.ops.packages import Package, unsupported

if TYPE_CHECKING:
    from benchx.core.call import Tensors

PACKAGE = Package(
    module="flash_mla",
    distribution="tokenspeed-flashmla",
    tested="1.0.0.post20260615",
    archs=("sm_90",),
    wheels="CPython 3.12 on Linux x86-64",
    hashed_files="cuda.cpython-*.so",
)


class FlashMla:
    """`flash_mla.flash_mla_with_kvcache`, which reads the paged cache as it is."""

    name = "flashmla"
    operator = "mla_decode"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Unsupported: projections, other widths or pages, fp32, an fp8 cache."""
        widths = (params["kv_lora"], params["rope_dim"])
        return unsupported(
            (not params["projections"], "FlashMLA starts from absorbed q: no projections"),
            (widths == (512, 64), "FlashMLA's dense decode is compiled for kv_lora 512 + rope 64"),
            (params["page_size"] == 64, "FlashMLA reads pages of 64 tokens only"),
            (
                params["dtype"] in ("bfloat16", "float16"),
                f"FlashMLA takes bfloat16 or float16, not {params['dtype']}",
            ),
            (
                params["cache_dtype"] in ("auto", params["dtype"]),
                "FlashMLA reads an fp8 cache for sparse attention only",
            ),
        ) or PACKAGE.absent(device)

    def prepare(self, inputs: DecodeInputs) -> PreparedCall:
        """The split schedule is made by the first call and kept, as a server keeps it for a step.

        It depends on the lengths, so it must not be shared by inputs of other lengths.
        """
        from flash_mla import flash_mla_with_kvcache, get_mla_metadata

        schedule, _ = get_mla_metadata()
        arguments = {
            "q": inputs.q,
            "k_cache": inputs.kv_cache.unsqueeze(2),  # one KV head
            "block_table": inputs.block_table,
            "cache_seqlens": inputs.seqlens,
            "head_dim_v": inputs.kv_lora,
            "tile_scheduler_metadata": schedule,
            "softmax_scale": inputs.scale,
            "causal": inputs.tokens > 1,
        }

        def run() -> Tensors:
            out, _ = flash_mla_with_kvcache(**arguments)
            return {"o": out}

        return PreparedCall(run=run)

    def provenance(self) -> Mapping[str, Any]:
        """Package; the compiled extension's hash. It dispatches to nothing else."""
        return PACKAGE.provenance() | {"dispatched": "flash_mla dense_decode_fwd"}


register_backend(FlashMla())
