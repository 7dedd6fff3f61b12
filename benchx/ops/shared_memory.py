"""What our Triton kernels need of a processor's shared memory, where some device has less.

Compiled ahead of time for each architecture; only what was found not to fit is refused. Another
shape or architecture is left to try: it compiles and runs, or its point says what the driver said.
"""

from __future__ import annotations

from benchx.core.axes import Params

_HAS_BYTES = {"gfx90a": 64 << 10, "gfx942": 64 << 10, "sm_89": 99 << 10, "sm_120": 99 << 10}
"""Most that one program may have: AMD's LDS of a compute unit, and compute capability tables."""

_SCAN_256_BYTES = {"gfx90a": 88064, "gfx942": 88064, "sm_89": 139264, "sm_120": 139264}
"""Of K2 of the chunked prefill with the delta rule, K = 256, as `scan_cut` cuts it."""

_LATENT_512_BYTES = {"up to 32 rows": 112640, "more than 32 rows": 139264, "fp8 cache": 108544}
"""Of the portable decode kernel on NVIDIA, C + R = 512 + 64, as `portable_decode` cuts it; with up
to 16 rows it fits everywhere."""


def scan_problem(operator: str, params: Params, arch: str) -> str | None:
    """Why a prefill of the linear family can't run on an architecture, or None."""
    if params["head_dim"] != 256 or operator == "linear_attention":
        return None
    return _problem("the scan with K = 256", _SCAN_256_BYTES.get(arch), arch)


def latent_problem(params: Params, arch: str) -> str | None:
    """Why a decode step of MLA can't run on an architecture, or None."""
    rows = int(params["heads"]) * int(params["tokens"])
    wide = (params["kv_lora"], params["rope_dim"]) == (512, 64)
    if not wide or rows <= 16 or not arch.startswith("sm_"):
        return None
    if params["cache_dtype"] == "float8_e4m3":
        kind = "fp8 cache" if rows > 32 else None
    else:
        kind = "more than 32 rows" if rows > 32 else "up to 32 rows"
    if kind is None:
        return None
    return _problem(f"decode of {rows} rows a sequence", _LATENT_512_BYTES[kind], arch)


def _problem(what: str, needs: int | None, arch: str) -> str | None:
    has = _HAS_BYTES.get(arch)
    if has is None or needs is None or needs <= has:
        return None
    return f"{what} needs {needs} bytes of shared memory; a program on {arch} has at most {has}"
