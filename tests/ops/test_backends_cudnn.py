"""The adapter of the cuDNN frontend against a stand-in with the checks of its wrapper."""

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
CUDNN = backends_of("kda_prefill").get("cudnn")


def point(**changed: Scalar) -> Params:
    known = {name: axis.default for name, axis in KDA.axes.items() if axis.default is not None}
    return known | {"heads": 2, "seqlens": "17+5"} | changed


def inputs_of(**changed: Scalar) -> LinearInputs:
    return KDA.make_inputs(point(**changed), seed=1, device=torch.device("cpu"))


@dataclass(frozen=True)
class Engine:
    name: str


@dataclass(frozen=True)
class Graph:
    """A planned graph; None where nothing has been planned yet."""

    selected_engine: Engine | None


@dataclass
class CudnnStandIn:
    """`kimi_delta_attention` of 1.32.0: limits of its wrapper and of its Hopper CUDA engine."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    fprop_cache: dict[int, tuple[Graph, dict[str, object]]] = field(default_factory=dict)

    def kimi_delta_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        cu_seqlens: Tensor,
        scale: float | None = None,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        use_beta_sigmoid_in_kernel: bool = False,
        safe_gate: bool = False,
        gate_lower_bound: float | None = None,
        a_log: Tensor | None = None,
        dt_bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        assert q.dim() == 3
        assert q.dtype == torch.bfloat16
        assert q.shape[2] == v.shape[2] == 128
        assert safe_gate or (a_log is None and dt_bias is None)
        assert output_final_state
        assert use_beta_sigmoid_in_kernel
        assert scale is not None
        self.calls.append({"cu_seqlens": cu_seqlens, "gradients": torch.is_grad_enabled()})
        self.fprop_cache[len(self.calls)] = (Graph(Engine("kda_hopper_cuda")), {})
        terms = reference_linear.activate(
            q, k, v, g, beta, gate="bounded" if safe_gate else "log", a_log=a_log,
            dt_bias=dt_bias, lower_bound=gate_lower_bound or 0.0, scale=scale,
            qk_l2norm=use_qk_l2norm_in_kernel, dtype=torch.float64,
        )  # fmt: skip
        order = reference_linear.block_order(tuple(cu_seqlens.diff().tolist()), 1, q.device)
        result = reference_linear.recurrent(terms, order, initial_state)
        state = torch.float32 if initial_state is None else initial_state.dtype
        return result.o.to(q.dtype), result.final_state.to(state)


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> CudnnStandIn:
    stand_in = CudnnStandIn()
    members = {
        "cudnn": {},
        "cudnn.linear_attention": {"kimi_delta_attention": stand_in.kimi_delta_attention},
        "cudnn.linear_attention.ops.kda": {"fprop_cache": stand_in.fprop_cache},
    }
    for name, values in members.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)
    return stand_in


def able() -> list[Any]:
    return [
        pytest.param(case, id=case.name)
        for case in prefill_cases(KDA)
        if (found := CUDNN.unavailable(case.params, CPU)) is not None
        and found.outcome is Outcome.SKIPPED
    ]


@pytest.mark.usefixtures("cudnn")
@pytest.mark.parametrize("case", able())
def test_a_prefill_is_right_and_changes_nothing(case: Case[LinearInputs]) -> None:
    inputs = case.make(KDA, torch.device("cpu"))
    assert offences(KDA, CUDNN, inputs, CPU) == []


def test_cu_seqlens_becomes_int32_once_and_no_gradient_is_tracked(cudnn: CudnnStandIn) -> None:
    call = CUDNN.prepare(inputs_of())
    call.run()
    call.run()
    first, second = cudnn.calls
    assert first["cu_seqlens"] is second["cu_seqlens"]
    assert first["cu_seqlens"].dtype == torch.int32
    assert not first["gradients"]


@pytest.mark.usefixtures("cudnn")
def test_the_record_names_the_engine_that_was_planned() -> None:
    CUDNN.prepare(inputs_of()).run()
    assert CUDNN.provenance()["dispatched"] == "kda_hopper_cuda"


def test_several_engines_are_all_named(cudnn: CudnnStandIn) -> None:
    engines = [Engine("kda_cutile"), None, Engine("kda_hopper_cuda"), Engine("kda_cutile")]
    cudnn.fprop_cache.update({-i: (Graph(engine), {}) for i, engine in enumerate(engines)})
    assert CUDNN.provenance()["dispatched"] == "kda_cutile, kda_hopper_cuda"


@pytest.mark.usefixtures("cudnn")
def test_no_engine_is_named_before_a_graph_is_planned() -> None:
    assert CUDNN.provenance()["dispatched"] is None


@pytest.mark.usefixtures("cudnn")
def test_it_may_be_captured_in_a_graph() -> None:
    assert CUDNN.prepare(inputs_of()).graph_safe


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"gate": "softplus"}, "no 'softplus' gate"),
        ({"lower_bound": -6.0}, "[-5, 0)"),
        ({"head_dim": 64}, "128"),
        ({"value_dim": 64}, "128"),
        ({"dtype": "float16"}, "bfloat16"),
        ({"dtype": "float32"}, "bfloat16"),
        ({"state_dtype": "float16"}, "float32 or bfloat16"),
        ({"state_dtype": "bfloat16", "initial_state": False}, "no initial state"),
    ],
)
def test_what_it_can_t_compute_is_unsupported_wherever_it_is_asked(
    changed: dict[str, Scalar], word: str
) -> None:
    for device in (CPU, H200):
        found = CUDNN.unavailable(point(**changed), device)
        assert found is not None
        assert found.outcome is Outcome.UNSUPPORTED
        assert word in found.reason


@pytest.mark.usefixtures("cudnn")
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"gate": "log", "lower_bound": -9.0},
        {"state_dtype": "bfloat16"},
        {"initial_state": False},
        {"qk_l2norm": False},
    ],
)
def test_what_it_can_compute_is_available_on_hopper(changed: dict[str, Scalar]) -> None:
    assert CUDNN.unavailable(point(**changed), H200) is None


@pytest.mark.usefixtures("cudnn")
@pytest.mark.parametrize("arch", ["sm_80", "sm_120", "gfx942"])
def test_on_other_gpus_it_is_skipped(arch: str) -> None:
    found = CUDNN.unavailable(point(), replace(H200, arch=arch))
    assert found is not None
    assert found.outcome is Outcome.SKIPPED


def test_a_missing_package_is_skipped_with_its_tested_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchx.ops.packages.find_spec", lambda name: None)
    found = CUDNN.unavailable(point(), H200)
    assert found is not None
    assert found.install == "pip install nvidia-cudnn-frontend==1.32.0"
