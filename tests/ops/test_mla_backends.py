"""Every backend of MLA prefill and decode on every adversarial case, on CPU and GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.device import Device
from benchx.measure.device import list_devices
from benchx.ops.base import OPERATORS, Backend, Operator, backends_of
from benchx.ops.conformance import offences
from benchx.ops.mla_cases import DecodeCase, PrefillCase, decode_cases, prefill_cases

Case = DecodeCase | PrefillCase
CPU = list_devices()[-1]
CASES = {"mla_prefill": prefill_cases, "mla_decode": decode_cases}

KNOWN_FAULTS = {  # (backend, case) -> what was seen on an H200, and with what
    ("flashinfer", "3 tokens of 96 heads"): "0.6.13: error 0.1 x the output; the last key that a "
    "tile of 128 rows may see is rounded down where the tile ends within a token",
}


def combinations() -> Iterator[tuple[Operator[Any], Backend[Any], Case]]:
    for name, cases in CASES.items():
        operator = OPERATORS.get(name)
        for case in cases(operator):
            for backend in backends_of(name):
                yield operator, backend, case


def marked(device: Device | None) -> list[Any]:
    """Test parameters; those that the CPU can't run are left out there."""
    return [
        pytest.param(
            operator,
            backend,
            case,
            id=f"{operator.name}/{backend.name}: {case.name}",
            marks=known_fault(backend, case),
        )
        for operator, backend, case in combinations()
        if device is None or backend.unavailable(case.params, device) is None
    ]


def known_fault(backend: Backend[Any], case: Case) -> list[pytest.MarkDecorator]:
    """Not strict: another version or card may be right."""
    fault = KNOWN_FAULTS.get((backend.name, case.name))
    return [pytest.mark.xfail(reason=fault, strict=False)] if fault else []


@pytest.mark.parametrize(("operator", "backend", "case"), marked(CPU))
def test_a_backend_is_right_and_touches_nothing_else_on_the_cpu(
    operator: Operator[Any], backend: Backend[Any], case: Case
) -> None:
    assert offences(operator, backend, case.make(operator, torch.device("cpu")), CPU) == []


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # of third parties' packages
@pytest.mark.parametrize(("operator", "backend", "case"), marked(None))
def test_a_backend_is_right_and_touches_nothing_else_on_the_gpu(
    operator: Operator[Any], backend: Backend[Any], case: Case
) -> None:
    device = list_devices()[0]
    if not device.is_gpu:
        pytest.skip("no GPU")
    unavailable = backend.unavailable(case.params, device)
    if unavailable is not None:
        pytest.skip(str(unavailable))
    inputs = case.make(operator, torch.device(device.torch_device))
    assert offences(operator, backend, inputs, device) == []
