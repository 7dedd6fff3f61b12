"""The MLA kernels compile for every supported chip and fit it, shown without the hardware."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "compile_mla.py"
SHARED_BYTES = {  # what one program may take, by the vendors' manuals
    "sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10,
    "gfx942": 64 << 10, "gfx950": 160 << 10,
}  # fmt: skip
# Addresses and scalars that live across a loop: of 255 registers, 128 hold an accumulator.
SPILLED_BYTES = 512
PORTABLE = ("prefill", "decode_12", "decode_128")


def facts(target: str, *names: str) -> list[dict[str, Any]]:
    """What the script says of each kernel."""
    command = [sys.executable, str(SCRIPT), target, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def misfits(target: str, *names: str) -> list[dict[str, Any]]:
    """The kernels that need more than the chip has."""
    found = facts(target, *names)
    assert [fact["kernel"] for fact in found] == list(names)
    return [
        fact
        for fact in found
        if fact["shared_bytes"] > SHARED_BYTES[target] or fact["spilled_bytes"] > SPILLED_BYTES
    ]


@pytest.mark.parametrize("target", SHARED_BYTES)
def test_the_merge_compiles_and_fits(target: str) -> None:
    assert misfits(target, "merge") == []


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PORTABLE)
@pytest.mark.parametrize("target", SHARED_BYTES)
def test_a_portable_kernel_compiles_and_fits(target: str, kernel: str) -> None:
    assert misfits(target, kernel) == []


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["hopper_decode", "hopper_prefill"])
def test_a_hopper_kernel_compiles_fits_and_uses_the_matrix_units(kernel: str) -> None:
    assert misfits("sm_90", kernel) == []
    assert facts("sm_90", kernel)[0]["wgmma"] > 0
