"""Compile the MLA kernels for one target without its hardware; one JSON line for each kernel.

Run as a script: in a test's own process the kernels may already be those of the interpreter.

    python compile_mla.py sm_90 merge prefill decode_16 ...
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from compile_ahead import compiled as compile_for
from compile_ahead import main
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime import JITFunction

from benchx_kernels._mla_configs import MlaPrefillConfig, portable_decode
from benchx_kernels.device import mla_decode, mla_prefill

POINTERS = {
    "table": "*i32", "seqlens": "*i32", "lse": "*fp32", "partial": "*fp32",
    "cu_queries": "*i64", "cu_keys": "*i64",
}  # fmt: skip
SWIZZLED = (
    "NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False, "
    "fp4_padded=False, cga_layout=[])"
)
TILES = {  # descriptors of the Hopper kernels
    "half_map": (64, 256), "rope_map": (64, 64), "nope_map": (128, 128), "value_map": (128, 128),
}  # fmt: skip
LATENT = {"LATENT": 512, "ROPE": 64}
STEP = {"TOKENS": 1, **LATENT, "PAGE": 64, "SPLIT": True}
HEAD = {"NOPE": 128, "ROPE": 64, "VALUE": 128}


def type_of(tiles: Mapping[str, tuple[int, int]], name: str) -> str:
    """Type of a kernel's argument by its name."""
    if name in tiles:
        return f"tensordesc<bf16[{tiles[name][0]}, {tiles[name][1]}],{SWIZZLED}>"
    if name in POINTERS:
        return POINTERS[name]
    if name == "scale_log2":
        return "fp32"
    return "*bf16" if name in {"q", "k", "v", "o", "cache"} else "i32"


def compiled(
    kernel: JITFunction[Any], constants: Mapping[str, Any], target: str, **options: int
) -> CompiledKernel:
    """The kernel with bf16 tensors aligned as torch aligns them."""
    tiles, source = TILES, ASTSource
    if "hopper" in kernel.fn.__module__:
        from triton.experimental.gluon._runtime import GluonASTSource

        source = GluonASTSource
        if "prefill" in kernel.fn.__module__:
            tiles = {**TILES, "rope_map": (128, 64)}
    return compile_for(kernel, partial(type_of, tiles), constants, target, source, **options)


def build(name: str, target: str) -> CompiledKernel:
    """One kernel by name, cut as it is cut on that target."""
    if name == "merge":
        constants = {"LATENT": 512, "BLOCK_C": 512, "SPLITS": 16}
        return compiled(mla_decode.merge, constants, target, num_warps=4)
    if name == "prefill":
        cut = MlaPrefillConfig()
        blocks = {"BLOCK_M": cut.block_m, "BLOCK_N": cut.block_n, "STAGES": cut.stages}
        return compiled(mla_prefill.attend, HEAD | blocks, target, num_warps=cut.warps)
    if name.startswith("hopper"):
        from benchx_kernels.device import mla_decode_hopper, mla_prefill_hopper

        kernel, constants = {
            "hopper_decode": (mla_decode_hopper.attend, STEP),
            "hopper_prefill": (mla_prefill_hopper.attend, HEAD),
        }[name]
        return compiled(kernel, constants, target, num_warps=4, maxnreg=168)
    cut = portable_decode(int(name.removeprefix("decode_")), amd=target.startswith("gfx"))
    blocks = {"BLOCK_M": cut.block_m, "BLOCK_N": cut.block_n, "STAGES": cut.stages}
    return compiled(mla_decode.attend, STEP | blocks, target, num_warps=cut.warps)


if __name__ == "__main__":
    main(build)
