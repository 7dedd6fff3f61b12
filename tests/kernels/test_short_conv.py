"""The fused convolution against the one in torch, in Triton's interpreter and on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from benchx_kernels import short_conv

CASES = [(1, 1, 4), (2, 3, 4), (2, 70, 4), (1, 33, 2), (3, 5, 1)]


def differences(device: str) -> list[float]:
    """Largest errors of outputs and windows, for slices as the KDA layer passes them."""
    found = []
    for sequences, tokens, width in CASES:
        drawn = torch.Generator().manual_seed(tokens)
        wide = torch.randn(sequences, tokens, 300, generator=drawn).to(device)
        x, taps = wide[..., 100:260], torch.randn(160, width, generator=drawn).to(device)
        held = torch.randn(sequences, width - 1, 300, generator=drawn).to(device)
        one, two = held[..., 100:260], held.clone()[..., 100:260]
        y = short_conv._fused(x, taps, one)
        expected = short_conv._in_torch(x.double(), taps.double(), two)
        found.append(float((y.double() - expected).abs().max()))
        found.append(float((one - two).abs().max()) if width > 1 else 0.0)
    return found


def test_the_fused_kernel_is_the_convolution_in_the_interpreter() -> None:
    """In a process of its own: Triton decides when it is imported whether it interprets."""
    code = (
        "import sys; from importlib import util;"
        "spec = util.spec_from_file_location('t', sys.argv[1]);"
        "t = util.module_from_spec(spec); spec.loader.exec_module(t);"
        "assert max(t.differences('cpu')) < 1e-5, t.differences('cpu')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.gpu
def test_the_fused_kernel_is_the_convolution_on_a_gpu() -> None:
    assert max(differences("cuda")) < 1e-5
