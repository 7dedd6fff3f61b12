"""The check that backends are pointed at finds each way of being wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.device import list_devices
from benchx.ops.base import OPERATORS, Unavailable, backends_of
from benchx.ops.conformance import between_nans, offences, tensors
from benchx.ops.linear_cases import Case, prefill_cases
from benchx.ops.linear_inputs import LinearInputs

Fault = Callable[[LinearInputs, dict[str, Tensor]], None]
OPERATOR = OPERATORS.get("kda_prefill")
CPU = list_devices()[-1]
CASES: dict[str, Case[LinearInputs]] = {c.name: c for c in prefill_cases(OPERATOR, width=16)}


@dataclass(frozen=True)
class Faulty:
    """The chunked form with a fault after every run."""

    fault: Fault
    name: str = "faulty"
    operator: str = "kda_prefill"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        return None

    def prepare(self, inputs: LinearInputs) -> PreparedCall:
        good = backends_of("kda_prefill").get("chunked").prepare(inputs)

        def run() -> Mapping[str, Tensor]:
            outputs = dict(good.run())
            self.fault(inputs, outputs)
            return outputs

        return PreparedCall(run=run)

    def provenance(self) -> Mapping[str, Any]:
        return {}


def found(fault: Fault, case: str = "ragged") -> str:
    inputs = CASES[case].make(OPERATOR, torch.device("cpu"))
    return "; ".join(offences(OPERATOR, Faulty(fault), inputs, CPU))


def nothing(inputs: LinearInputs, outputs: dict[str, Tensor]) -> None:
    pass


def touches_gates(inputs: LinearInputs, outputs: dict[str, Tensor]) -> None:
    assert inputs.g is not None
    inputs.g[0] = 0


def leaves_a_state_unwritten(inputs: LinearInputs, outputs: dict[str, Tensor]) -> None:
    outputs["final_state"][-1] = torch.empty_like(outputs["final_state"][-1]).fill_(float("nan"))


def forgets_the_state_of_an_empty_sequence(
    inputs: LinearInputs, outputs: dict[str, Tensor]
) -> None:
    outputs["final_state"][inputs.lengths.index(0)] = 0


def reads_past_the_end(inputs: LinearInputs, outputs: dict[str, Tensor]) -> None:
    beyond = inputs.v.as_strided((1,), (1,), inputs.v.storage_offset() + inputs.v.numel())
    outputs["o"][-1] += beyond


def spoils_the_last_token(inputs: LinearInputs, outputs: dict[str, Tensor]) -> None:
    outputs["o"][-1] *= 1.5


@pytest.mark.parametrize(
    ("fault", "case", "expected"),
    [
        (touches_gates, "ragged", "first run: changed input g"),
        (leaves_a_state_unwritten, "ragged", "final_state: "),
        (forgets_the_state_of_an_empty_sequence, "empty in front", "final_state: rms ratio"),
        (reads_past_the_end, "ragged", "o: 48 of"),
        (spoils_the_last_token, "ragged", "o: "),
    ],
)
def test_a_fault_is_named(fault: Fault, case: str, expected: str) -> None:
    assert expected in found(fault, case)


def test_a_faultless_backend_passes() -> None:
    assert found(nothing) == ""


def test_guards_leave_values_and_layout_as_they_were() -> None:
    inputs = CASES["ragged"].make(OPERATOR, torch.device("cpu"))
    guarded = tensors(between_nans(inputs))
    for name, tensor in tensors(inputs).items():
        assert torch.equal(guarded[name], tensor)
        assert guarded[name].is_contiguous()
        assert guarded[name].data_ptr() % 16 == 0


@pytest.mark.parametrize("name", ["masked tokens, log gate", "identical keys, bounded gate"])
def test_the_changes_of_a_case_reach_its_inputs(name: str) -> None:
    inputs = CASES[name].make(OPERATOR, torch.device("cpu"))
    if "masked" in name:
        assert inputs.g is not None
        assert (inputs.g == -1000).float().mean() == pytest.approx(0.2, abs=0.01)
    else:
        assert torch.equal(inputs.k[-1], inputs.k[0])


def test_case_names_are_unique() -> None:
    names = [case.name for case in prefill_cases(OPERATOR)]
    assert len(names) == len(set(names))
