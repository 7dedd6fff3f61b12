"""The adapter of FlashKDA against a stand-in with the checks of its C++ entry."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.measure.device import list_devices
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.conformance import offences
from benchx.ops.linear_cases import Case, prefill_cases
from benchx.ops.linear_inputs import LinearInputs
from benchx_kernels import reference_linear

CPU = list_devices()[-1]
H200 = Device(
    vendor="nvidia", torch_type="cuda", name="NVIDIA H200", index=0, count=1, arch="sm_90",
    memory_bytes=150 << 30, l2_bytes=60 << 20, compute_units=132,
)  # fmt: skip
KDA = OPERATORS.get("kda_prefill")
FLASHKDA = backends_of("kda_prefill").get("flashkda")


def point(**changed: Scalar) -> Params:
    known = {name: axis.default for name, axis in KDA.axes.items() if axis.default is not None}
    return known | {"heads": 2, "seqlens": "17+5"} | changed


def inputs_of(**changed: Scalar) -> LinearInputs:
    return KDA.make_inputs(point(**changed), seed=1, device=torch.device("cpu"))


@dataclass
class FlashKdaStandIn:
    """`flash_kda.fwd` of 0.0.1.post20260729: computes from its arguments into `out`."""

    calls: list[dict[str, Any]] = field(default_factory=list)

    def fwd(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        scale: float,
        out: Tensor,
        A_log: Tensor,
        dt_bias: Tensor,
        lower_bound: float,
        initial_state: Tensor | None = None,
        final_state: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> None:
        batch, tokens, heads, width = q.shape
        for tensor in (q, k, v, g, out):
            assert tensor.dtype == torch.bfloat16
            assert tensor.shape == (1, tokens, heads, 128) == (batch, tokens, heads, width)
            assert tensor.is_contiguous()
        assert (beta.dtype, beta.shape) == (torch.bfloat16, (1, tokens, heads))
        assert A_log.dtype == dt_bias.dtype == torch.float32
        assert dt_bias.shape == (heads, 128)
        assert cu_seqlens is None or cu_seqlens.dtype == torch.int64
        lengths = (tokens,) if cu_seqlens is None else tuple(cu_seqlens.diff().tolist())
        assert final_state is not None
        assert final_state.shape == (len(lengths), heads, 128, 128)
        assert initial_state is None or initial_state.dtype == final_state.dtype
        self.calls.append({"out": out, "final_state": final_state, "cu_seqlens": cu_seqlens})
        terms = reference_linear.activate(
            q[0], k[0], v[0], g[0], beta[0], gate="bounded", a_log=A_log, dt_bias=dt_bias,
            lower_bound=lower_bound, scale=scale, qk_l2norm=True, dtype=torch.float64,
        )  # fmt: skip
        order = reference_linear.block_order(lengths, 1, q.device)
        result = reference_linear.recurrent(terms, order, initial_state)
        out[0] = result.o.to(out.dtype)
        final_state[:] = result.final_state.to(final_state.dtype)


@pytest.fixture
def flash_kda(monkeypatch: pytest.MonkeyPatch) -> FlashKdaStandIn:
    stand_in = FlashKdaStandIn()
    module = ModuleType("flash_kda")
    module.__spec__ = ModuleSpec("flash_kda", None)
    module.fwd = stand_in.fwd  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_kda", module)
    return stand_in


def able() -> list[Any]:
    return [
        pytest.param(case, id=case.name)
        for case in prefill_cases(KDA)
        if (found := FLASHKDA.unavailable(case.params, CPU)) is not None
        and found.outcome is Outcome.SKIPPED
    ]


@pytest.mark.usefixtures("flash_kda")
@pytest.mark.parametrize("case", able())
def test_a_prefill_is_right_and_changes_nothing(case: Case[LinearInputs]) -> None:
    inputs = case.make(KDA, torch.device("cpu"))
    assert offences(KDA, FLASHKDA, inputs, CPU) == []


def test_outputs_are_allocated_once(flash_kda: FlashKdaStandIn) -> None:
    call = FLASHKDA.prepare(inputs_of())
    first, second = call.run(), call.run()
    assert first["o"].data_ptr() == second["o"].data_ptr() == flash_kda.calls[0]["out"].data_ptr()
    assert first["final_state"] is second["final_state"] is flash_kda.calls[0]["final_state"]


def test_the_final_state_follows_the_state_dtype_without_an_initial_state(
    flash_kda: FlashKdaStandIn,
) -> None:
    FLASHKDA.prepare(inputs_of(initial_state=False, state_dtype="bfloat16")).run()
    assert flash_kda.calls[0]["final_state"].dtype == torch.bfloat16


def test_a_single_sequence_goes_without_cu_seqlens(flash_kda: FlashKdaStandIn) -> None:
    FLASHKDA.prepare(inputs_of(seqlens="22")).run()
    assert flash_kda.calls[0]["cu_seqlens"] is None


@pytest.mark.usefixtures("flash_kda")
def test_it_may_be_captured_in_a_graph() -> None:
    assert FLASHKDA.prepare(inputs_of()).graph_safe


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"gate": "softplus"}, "not 'softplus'"),
        ({"gate": "log"}, "not 'log'"),
        ({"lower_bound": -5.5}, "overflow"),
        ({"lower_bound": 0.0}, "overflow"),
        ({"head_dim": 64}, "128"),
        ({"value_dim": 256}, "128"),
        ({"dtype": "float16"}, "bfloat16"),
        ({"state_dtype": "float16"}, "float32 or bfloat16"),
        ({"qk_l2norm": False}, "normalises"),
        ({"seqlens": "0+0"}, "aborts"),
    ],
)
def test_what_it_can_t_compute_is_unsupported_wherever_it_is_asked(
    changed: dict[str, Scalar], word: str
) -> None:
    for device in (CPU, H200):
        found = FLASHKDA.unavailable(point(**changed), device)
        assert found is not None
        assert found.outcome is Outcome.UNSUPPORTED
        assert word in found.reason


@pytest.mark.usefixtures("flash_kda")
@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_103", "sm_120"])
def test_it_runs_on_the_gpus_that_the_wheel_holds_kernels_for(arch: str) -> None:
    assert FLASHKDA.unavailable(point(), replace(H200, arch=arch)) is None


@pytest.mark.usefixtures("flash_kda")
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "gfx942"])
def test_on_other_gpus_it_is_skipped(arch: str) -> None:
    found = FLASHKDA.unavailable(point(), replace(H200, arch=arch))
    assert found is not None
    assert (found.outcome, found.install) == (Outcome.SKIPPED, None)
    assert arch in found.reason


def test_a_missing_package_is_skipped_with_its_tested_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchx.ops.packages.find_spec", lambda name: None)
    found = FLASHKDA.unavailable(point(), H200)
    assert found is not None
    assert found.outcome is Outcome.SKIPPED
    assert found.install == "pip install tokenspeed-flashkda==0.0.1.post20260729"
    assert "CPython 3.12" in found.reason
