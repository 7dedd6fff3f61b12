"""The fused convolution against the one in torch, in Triton's interpreter and on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": torch.zeros(5, 8)}, r"x is \(5, 8\)"),
        ({"taps": torch.zeros(7, 4)}, r"taps \(7, 4\)"),
        ({"taps": torch.zeros(8, 0)}, r"expected \[B, S, channels\] and \[channels, width\]"),
        ({"window": torch.zeros(2, 4, 8)}, r"expected a window \(2, 3, 8\)"),
        ({"window": torch.zeros(1, 3, 8)}, r"expected a window \(2, 3, 8\)"),
        ({"taps": torch.zeros(8, 4, device="meta")}, "taps on meta"),
    ],
)
def test_a_convolution_that_does_not_fit_is_refused(change: dict[str, Any], words: str) -> None:
    given = {"x": torch.zeros(2, 5, 8), "taps": torch.zeros(8, 4), "window": torch.zeros(2, 3, 8)}
    with pytest.raises(ValueError, match=words):
        short_conv.short_conv(**given | change)


@pytest.mark.parametrize(
    "change",
    [
        {"taps": torch.zeros(4, 8).T},
        {"x": torch.zeros(5, 2, 8).transpose(0, 1)},
        {"x": torch.zeros(2, 5, 16)[..., ::2]},
        {"window": torch.zeros(3, 2, 8).transpose(0, 1)},
    ],
)
def test_the_fused_kernel_refuses_strides_that_it_would_not_follow(change: dict[str, Any]) -> None:
    given = {"x": torch.zeros(2, 5, 8), "taps": torch.zeros(8, 4), "window": torch.zeros(2, 3, 8)}
    with pytest.raises(ValueError, match="strides are"):
        short_conv._fused(**given | change)


@pytest.mark.gpu
def test_the_fused_kernel_is_the_convolution_on_a_gpu() -> None:
    assert max(differences("cuda")) < 1e-5
