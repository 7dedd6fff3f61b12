"""The kernels compile for every supported chip and fit it, shown without the hardware."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
SHARED_BYTES = {  # what one program may take, by the vendors' manuals
    "sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10,
    "gfx942": 64 << 10, "gfx950": 160 << 10,
}  # fmt: skip
# Addresses and scalars that live across a loop: of 255 registers, 128 hold an accumulator.
SPILLED_BYTES = 512
# Of 240 registers, 128 hold an accumulator; operand descriptors, most of them used once a pair.
HOPPER_SPILLED_BYTES = 768
HOPPER = (
    "hopper_decode", "hopper_prefill",
)  # fmt: skip
PORTABLE = ("prefill", "decode_12", "decode_128")
LINEAR = (
    "kda", "softplus", "scalar", "scan_64", "scan_128", "segments", "prefix", "decode",
)  # fmt: skip


def facts(script: str, target: str, *names: str) -> list[dict[str, Any]]:
    """What a script says of each kernel."""
    command = [sys.executable, str(FOLDER / f"compile_{script}.py"), target, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def misfits(
    script: str, target: str, *names: str, spilled_bytes: int = SPILLED_BYTES
) -> list[dict[str, Any]]:
    """The kernels that need more than the chip has."""
    found = facts(script, target, *names)
    assert [fact["kernel"] for fact in found] == list(names)
    return [
        fact
        for fact in found
        if fact["shared_bytes"] > SHARED_BYTES[target] or fact["spilled_bytes"] > spilled_bytes
    ]


@pytest.mark.parametrize("target", SHARED_BYTES)
def test_the_merge_compiles_and_fits(target: str) -> None:
    assert misfits("mla", target, "merge") == []


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PORTABLE)
@pytest.mark.parametrize("target", SHARED_BYTES)
def test_a_portable_kernel_compiles_and_fits(target: str, kernel: str) -> None:
    assert misfits("mla", target, kernel) == []


@pytest.mark.slow
@pytest.mark.parametrize("kernel", HOPPER)
def test_a_hopper_kernel_compiles_fits_and_uses_the_matrix_units(kernel: str) -> None:
    assert misfits("mla", "sm_90", kernel, spilled_bytes=HOPPER_SPILLED_BYTES) == []
    assert facts("mla", "sm_90", kernel)[0]["wgmma"] > 0


@pytest.mark.parametrize("target", SHARED_BYTES)
def test_the_decode_step_compiles_and_fits(target: str) -> None:
    assert misfits("linear", target, "decode") == []


@pytest.mark.slow
@pytest.mark.parametrize("target", SHARED_BYTES)
def test_the_linear_family_compiles_and_fits(target: str) -> None:
    assert misfits("linear", target, *LINEAR) == []


@pytest.mark.slow
def test_the_scan_uses_hoppers_matrix_units() -> None:
    assert facts("linear", "sm_90", "scan_128")[0]["wgmma"] > 0
