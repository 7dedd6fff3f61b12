"""Compile the kernels of the linear family for one target; one JSON line for each kernel.

python compile_linear.py sm_90 kda softplus scalar scan_128 segments prefix decode
"""

from __future__ import annotations

from typing import Any

from compile_ahead import compiled, main
from triton.compiler import CompiledKernel

from benchx_kernels._configs import (
    LOCAL_REGISTERS,
    PREFIX_BLOCK_V,
    PREFIX_WARPS,
    decode_config,
    scan_cut,
)
from benchx_kernels.device import chunk_intra, chunk_scan, decode

TYPES = {
    "cu_seqlens": "*i64", "slots": "*i32", "scale": "fp32", "lower_bound": "fp32",
    "n_seqs": "i32", "n_slots": "i32", "heads": "i32", "n_segments": "i32",
    "segment_chunks": "i32", "work": "*fp16",
}  # fmt: skip
FP32 = ("a_log", "dt_bias", "decay", "initial", "final", "starts", "own", "state")
GATES = {"kda": (0, True), "softplus": (1, False), "scalar": (3, False)}
WIDTH = 128


def type_of(name: str) -> str:
    """Type of a kernel's argument by its name."""
    return TYPES.get(name, "*fp32" if name in FP32 else "*bf16")


def build(name: str, target: str) -> CompiledKernel:
    """One kernel by name, cut as it is cut on that target."""
    amd = target.startswith("gfx")
    cut = scan_cut(WIDTH, WIDTH, amd=amd)
    limit = {} if amd or name != "kda" else {"maxnreg": cut.intra_registers}
    shape: dict[str, Any] = {"CHUNK": cut.chunk, "K": WIDTH, "V": WIDTH}
    state = {"HAS_INITIAL": True, "V_FIRST": True}
    if name in GATES:
        gate, narrow = GATES[name]
        constants = {"CHUNK": cut.chunk, "K": WIDTH, "GATE": gate}
        constants |= {"DELTA": True, "L2_NORM": True, "NARROW": narrow}
        warps = cut.intra_warps
        return compiled(
            chunk_intra.chunk_intra, type_of, constants, target, num_warps=warps, **limit
        )
    if name == "decode":
        step = decode_config()
        constants = {"TOKENS": 1, "K": WIDTH, "V": WIDTH, "BLOCK_V": step.block_v, "GATE": 0}
        constants |= {"L2_NORM": True, "V_FIRST": True, "HAS_SLOTS": True}
        return compiled(decode.decode_step, type_of, constants, target, num_warps=step.warps)
    if name == "prefix":
        constants = shape | state | {"BLOCK_V": PREFIX_BLOCK_V, "STAGES": cut.prefix_stages}
        return compiled(
            chunk_scan.segment_prefix, type_of, constants, target, num_warps=PREFIX_WARPS
        )
    walk = {"BLOCK_V": cut.block_v, "DELTA": True, "STAGES": cut.stages}
    if name == "segments":
        limit = {} if amd else {"maxnreg": LOCAL_REGISTERS}
        return compiled(
            chunk_scan.segment_scan, type_of, shape | walk, target, num_warps=cut.warps, **limit
        )
    width = int(name.removeprefix("scan_"))
    constants = shape | walk | state | {"K": width, "V": width}
    constants |= {"STORE_FINAL": True, "SEGMENTED": False}
    return compiled(chunk_scan.state_scan, type_of, constants, target, num_warps=cut.warps)


if __name__ == "__main__":
    main(build)
