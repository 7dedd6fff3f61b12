"""Compile kernels for a target without its hardware; the scripts beside this one say which.

They run as scripts: in a test's own process the kernels may already be those of the interpreter.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime import JITFunction

TARGETS = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
    "gfx950": ("hip", "gfx950", 64),
}


def compiled(
    kernel: JITFunction[Any],
    type_of: Callable[[str], str],
    constants: Mapping[str, Any],
    target: str,
    source: type[ASTSource] = ASTSource,
    **options: int,
) -> CompiledKernel:
    """The kernel with tensors aligned as torch aligns them; `type_of` an argument's name."""
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else type_of(n) for n in names}
    aligned = {
        (i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if signature[n][0] == "*"
    }
    made = source(fn=kernel, signature=signature, constexprs=dict(constants), attrs=aligned)
    return triton.compile(made, target=GPUTarget(*TARGETS[target]), options=options)


def spilled_bytes(kernel: CompiledKernel) -> int:
    """Bytes a thread that registers did not hold."""
    if "amdgcn" in kernel.asm:
        found = re.findall(r"\.vgpr_spill_count:\s+(\d+)", kernel.asm["amdgcn"])
        return 4 * max(map(int, found))
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"STACK:(\d+)", usage)[0])


def main(build: Callable[[str, str], CompiledKernel]) -> None:
    """Print {kernel, shared_bytes, spilled_bytes, wgmma} for the target and names in argv."""
    target, *names = sys.argv[1:]
    for name in names:
        kernel = build(name, target)
        facts = {
            "kernel": name,
            "shared_bytes": kernel.metadata.shared,
            "spilled_bytes": spilled_bytes(kernel),
            "wgmma": kernel.asm.get("ptx", "").count("wgmma.mma_async"),
        }
        print(json.dumps(facts), flush=True)
