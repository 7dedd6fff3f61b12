"""Every backend of the linear-attention family on every adversarial case, on CPU and GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params
from benchx.core.device import Device
from benchx.measure.correctness import judge
from benchx.measure.device import list_devices
from benchx.ops.base import OPERATORS, Backend, Operator, backends_of
from benchx.ops.conformance import offences
from benchx.ops.linear_cases import Case, beyond_int32, decode_cases, prefill_cases

PREFILL = ("linear_attention", "delta_rule", "gated_delta_rule", "kda_prefill")
CPU = list_devices()[-1]

KNOWN_FAULTS = {  # (backend, first words of the case) -> what was seen on an H200, and with what
    ("flashkda", "identical keys"): "post20260729: error 23 x the output; its inverse is fp16, "
    "vllm-project/FlashKDA#10",
    ("flashkda", "correlated keys"): "post20260729: error 0.05; its inverse is fp16",
    ("cudnn", "masked tokens"): "1.32.0: all NaN once a log decay is -1000",
}


def parameters(width: int) -> Iterator[Any]:
    """Operator, backend and case of every test."""
    for name in (*PREFILL, "kda_decode"):
        operator = OPERATORS.get(name)
        all_cases = prefill_cases if name in PREFILL else decode_cases
        for case in all_cases(operator, width=width):
            for backend in backends_of(name):
                label = f"{name}/{backend.name}: {case.name}"
                fault = KNOWN_FAULTS.get((backend.name, case.name.partition(",")[0]))
                marks = [pytest.mark.xfail(reason=fault, strict=False)] if fault else []
                yield pytest.param(operator, backend, case, id=label, marks=marks)


def on_the_cpu() -> list[Any]:
    """What the CPU can run, narrow enough to be quick."""
    return [p for p in parameters(32) if p.values[1].unavailable(p.values[2].params, CPU) is None]


def gpu_for(backend: Backend[Any], params: Params) -> Device:
    """The first GPU; skips the test where there is none or the backend has no use for it."""
    device = list_devices()[0]
    if not device.is_gpu:
        pytest.skip("no GPU")
    unavailable = backend.unavailable(params, device)
    if unavailable is not None:
        pytest.skip(str(unavailable))
    return device


@pytest.mark.parametrize(("operator", "backend", "case"), on_the_cpu())
def test_a_backend_is_right_and_touches_nothing_else_on_the_cpu(
    operator: Operator[Any], backend: Backend[Any], case: Case[Any]
) -> None:
    assert offences(operator, backend, case.make(operator, torch.device("cpu")), CPU) == []


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # of third parties' packages
@pytest.mark.parametrize(("operator", "backend", "case"), list(parameters(128)))
def test_a_backend_is_right_and_touches_nothing_else_on_the_gpu(
    operator: Operator[Any], backend: Backend[Any], case: Case[Any]
) -> None:
    device = gpu_for(backend, case.params)
    inputs = case.make(operator, torch.device(device.torch_device))
    assert offences(operator, backend, inputs, device) == []


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # of third parties' packages
@pytest.mark.slow
@pytest.mark.parametrize("backend", list(backends_of("kda_prefill")), ids=lambda b: b.name)
def test_more_than_two_to_the_31_elements_are_addressed_right(backend: Backend[Any]) -> None:
    """fla#1080, vllm#47671: 32-bit offsets wrap, and what comes out is finite but wrong."""
    operator = OPERATORS.get("kda_prefill")
    case = beyond_int32(operator)
    device = gpu_for(backend, case.params)
    if device.memory_bytes < 100 * 2**30:
        pytest.skip("needs 100 GiB of device memory")
    inputs = case.make(operator, torch.device(device.torch_device))
    outputs = backend.prepare(inputs).run()
    specs, truth = operator.output_specs(inputs), operator.reference(inputs)
    assert judge(outputs, specs, truth, operator.max_rms_ratio).reason is None
