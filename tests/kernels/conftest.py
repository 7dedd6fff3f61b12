"""Triton's interpreter stands in for a device: kernels of these tests are defined under it.

A kernel asks for the interpreter when its module is imported, so the modules are imported here with
the variable set, and it is unset again: commands that other tests start must not see it.
"""

from __future__ import annotations

import importlib
import os
import pkgutil

import pytest
import torch

from benchx.core.device import Device

VARIABLE = "TRITON_INTERPRET"

if not torch.cuda.is_available():
    os.environ[VARIABLE] = "1"
    package = importlib.import_module("benchx_kernels.device")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    del os.environ[VARIABLE]


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The CPU as a device on which the Triton backends are available."""
    if torch.cuda.is_available():
        pytest.skip("the kernels were compiled for the GPU of this machine; see the gpu tests")
    monkeypatch.setenv(VARIABLE, "1")
    return Device(
        vendor="cpu",
        torch_type="cpu",
        name="Triton's interpreter",
        index=0,
        count=1,
        arch="interpreter",
        memory_bytes=2**34,
        l2_bytes=2**20,
        compute_units=1,
    )
