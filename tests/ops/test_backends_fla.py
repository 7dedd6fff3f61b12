"""The adapters of FLA against stand-ins with the signatures of fla-core 0.6.0.

A stand-in computes with the reference from the arguments that it is given, so an adapter that
passes on the wrong gate, layout, lengths or state returns the wrong output.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.core.device import Device
from benchx.core.errors import RunFailed
from benchx.core.outcome import Outcome
from benchx.measure.device import list_devices
from benchx.ops.backends_fla import SWITCHES, load_function
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.conformance import offences
from benchx.ops.linear_cases import Case, decode_cases, prefill_cases
from benchx.ops.linear_inputs import DecodeInputs, LinearInputs
from benchx_kernels import reference_linear

CPU = list_devices()[-1]
H200 = Device(
    vendor="nvidia", torch_type="cuda", name="NVIDIA H200", index=0, count=1, arch="sm_90",
    memory_bytes=150 << 30, l2_bytes=60 << 20, compute_units=132,
)  # fmt: skip
ANCESTRY = ("linear_attention", "delta_rule", "gated_delta_rule")
PREFILL = ("kda_prefill", *ANCESTRY)
DECODE = OPERATORS.get("kda_decode")
Arguments = dict[str, Any]


def point(operator: str, **changed: Scalar) -> Params:
    axes = OPERATORS.get(operator).axes
    known = {name: axis.default for name, axis in axes.items() if axis.default is not None}
    sizes: dict[str, Scalar] = {"heads": 2, "head_dim": 16, "value_dim": 16}
    batch: dict[str, Scalar] = {"batch": 2} if operator == "kda_decode" else {"seqlens": "17+5"}
    return known | sizes | batch | changed


def inputs_of(operator: str, **changed: Scalar) -> Any:  # noqa: ANN401
    params = point(operator, **changed)
    return OPERATORS.get(operator).make_inputs(params, seed=1, device=torch.device("cpu"))


def fla_of(operator: str) -> Any:  # noqa: ANN401
    return backends_of(operator).get("fla")


PARAMETERS = {
    name: set(words.split()) | {"q", "k", "v", "scale", "initial_state"}
    for name, words in {
        "chunk_kda": "g beta output_final_state use_qk_l2norm_in_kernel use_gate_in_kernel A_log"
        " use_beta_sigmoid_in_kernel safe_gate lower_bound state_v_first cu_seqlens dt_bias",
        "chunk_gated_delta_rule": "g beta output_final_state use_qk_l2norm_in_kernel"
        " use_beta_sigmoid_in_kernel state_v_first cu_seqlens",
        "chunk_delta_rule": "beta output_final_state use_qk_l2norm_in_kernel cu_seqlens",
        "chunk_linear_attn": "output_final_state normalize cu_seqlens",
        "chunk_simple_gla": "g output_final_state state_v_first cu_seqlens",
        "fused_recurrent_kda_fwd": "g beta inplace_final_state use_qk_l2norm_in_kernel A_log out"
        " use_gate_in_kernel use_beta_sigmoid_in_kernel lower_bound state_v_first dt_bias",
    }.items()
}
"""What each of FLA's functions takes, of what the adapters need."""

MODULES = {
    "chunk_kda": "fla.ops.kda",
    "chunk_gated_delta_rule": "fla.ops.gated_delta_rule",
    "chunk_delta_rule": "fla.ops.delta_rule",
    "chunk_linear_attn": "fla.ops.linear_attn",
    "chunk_simple_gla": "fla.ops.simple_gla",
    "fused_recurrent_kda_fwd": "fla.ops.kda.fused_recurrent",
    "l2norm": "fla.modules.norm.l2norm",
}


@dataclass
class FlaStandIn:
    """Every function keeps its arguments in `calls` and answers in FLA's layouts."""

    calls: list[Arguments] = field(default_factory=list)

    def chunk_kda(self, **given: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        self._keep("chunk_kda", given)
        assert not given["safe_gate"] or -5 <= given["lower_bound"] < 0
        return self._prefill(given)

    def chunk_gated_delta_rule(self, **given: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        self._keep("chunk_gated_delta_rule", given)
        return self._prefill(given)

    def chunk_delta_rule(self, **given: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        self._keep("chunk_delta_rule", given)
        assert given["q"].dtype != torch.float32
        return self._prefill(given)

    def chunk_linear_attn(self, **given: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        self._keep("chunk_linear_attn", given)
        assert given["normalize"] is False
        return self._prefill(given)

    def chunk_simple_gla(self, **given: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        self._keep("chunk_simple_gla", given)
        return self._prefill(given)

    def fused_recurrent_kda_fwd(self, **given: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        self._keep("fused_recurrent_kda_fwd", given)
        assert given["inplace_final_state"]
        batch, tokens = given["q"].shape[:2]
        packed = {name: given[name].flatten(0, 1)[None] for name in ("q", "k", "v", "g", "beta")}
        ends = torch.tensor([0] + [tokens] * batch).cumsum(0)
        o, state = self._prefill(given | packed | {"cu_seqlens": ends})
        given["initial_state"].copy_(state)
        return given["out"].copy_(o.view_as(given["out"])), given["initial_state"]

    def l2norm(self, x: Tensor) -> Tensor:
        return reference_linear.l2_normalised(x.float()).to(x.dtype)

    def _keep(self, function: str, given: Arguments) -> None:
        assert set(given) <= PARAMETERS[function]
        self.calls.append(given | {"function": function, "gradients": torch.is_grad_enabled()})

    def _prefill(self, given: Arguments) -> tuple[Tensor, Tensor]:
        def first(name: str) -> Tensor | None:
            return None if given.get(name) is None else given[name][0].double()

        inside = given.get("use_gate_in_kernel", False)
        bounded = given.get("lower_bound") is not None
        gate = ("bounded" if bounded else "softplus") if inside else "log"
        q, k, v = (given[name][0].double() for name in ("q", "k", "v"))
        beta = first("beta")
        bias = given.get("dt_bias")
        terms = reference_linear.activate(
            q, k, v, first("g"), None,
            gate=gate if "g" in given else "none",
            a_log=given.get("A_log"),
            dt_bias=None if bias is None else bias.view(q.shape[1:]),
            lower_bound=given.get("lower_bound") or 0.0,
            scale=given["scale"],
            qk_l2norm=given.get("use_qk_l2norm_in_kernel", False),
            dtype=torch.float64,
        )  # fmt: skip
        logits = given.get("use_beta_sigmoid_in_kernel", False)
        terms = replace(terms, beta=beta.sigmoid() if beta is not None and logits else beta)
        cu_seqlens, state = given.get("cu_seqlens"), given["initial_state"]
        lengths = (len(q),) if cu_seqlens is None else tuple(cu_seqlens.diff().tolist())
        order = reference_linear.block_order(lengths, 1, q.device)
        k_first = not given.get("state_v_first", False)
        if state is not None and k_first:
            state = state.mT
        result = reference_linear.recurrent(terms, order, state)
        final = result.final_state.float()
        final = final.mT.contiguous() if k_first else final
        return result.o.to(given["v"].dtype).unsqueeze(0), final


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An importable `fla` that reads its switch when imported, in an environment of its own."""
    (tmp_path / "fla").mkdir()
    (tmp_path / "fla" / "__init__.py").touch()
    (tmp_path / "fla" / "backends.py").write_text(
        "import os\n_DISPATCH_DISABLED = os.environ.get('FLA_DISABLE_BACKEND_DISPATCH') == '1'\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLA_")}
    monkeypatch.setattr(os, "environ", kept)
    monkeypatch.syspath_prepend(tmp_path)
    _forget_fla()
    yield
    _forget_fla()


def _forget_fla() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "fla"]:
        del sys.modules[name]


@pytest.fixture
def fla(environment: None, monkeypatch: pytest.MonkeyPatch) -> FlaStandIn:
    stand_in = FlaStandIn()
    for function, name in MODULES.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        setattr(module, function, getattr(stand_in, function))
        monkeypatch.setitem(sys.modules, name, module)
    return stand_in


def able(operator: str, cases: Iterator[Case[Any]]) -> list[Any]:
    """The cases of an operator that FLA would run on a GPU."""
    return [
        pytest.param(operator, case, id=f"{operator}: {case.name}")
        for case in cases
        if (found := fla_of(operator).unavailable(case.params, CPU)) is not None
        and found.outcome is Outcome.SKIPPED
    ]


CASES = [
    case for name in PREFILL for case in able(name, prefill_cases(OPERATORS.get(name), width=16))
]


@pytest.mark.usefixtures("fla")
@pytest.mark.parametrize(("operator", "case"), CASES)
def test_a_prefill_is_right_and_changes_nothing(operator: str, case: Case[LinearInputs]) -> None:
    definition = OPERATORS.get(operator)
    inputs = case.make(definition, torch.device("cpu"))
    assert offences(definition, fla_of(operator), inputs, CPU) == []


@pytest.mark.usefixtures("fla")
@pytest.mark.parametrize(("operator", "case"), able("kda_decode", decode_cases(DECODE, width=16)))
def test_a_decode_is_right_and_reset_restores_the_state(
    operator: str, case: Case[DecodeInputs]
) -> None:
    inputs = case.make(DECODE, torch.device("cpu"))
    assert offences(DECODE, fla_of(operator), inputs, CPU) == []


def test_decode_writes_its_state_in_place_and_its_output_into_one_tensor(fla: FlaStandIn) -> None:
    inputs = inputs_of("kda_decode")
    call = fla_of("kda_decode").prepare(inputs)
    first, second = call.run(), call.run()
    assert first["state"] is inputs.state
    assert first["o"].data_ptr() == second["o"].data_ptr() == fla.calls[0]["out"].data_ptr()


@pytest.mark.parametrize(
    ("gate", "bound", "safe"),
    [("bounded", -5.0, True), ("bounded", -5.5, False), ("softplus", -5.0, False),
     ("log", -5.0, False)],
)  # fmt: skip
def test_the_tensor_core_path_is_on_where_the_gate_is_bounded_enough(
    fla: FlaStandIn, gate: str, bound: float, safe: bool
) -> None:
    fla_of("kda_prefill").prepare(inputs_of("kda_prefill", gate=gate, lower_bound=bound)).run()
    assert fla.calls[0]["safe_gate"] is safe


def test_a_single_sequence_goes_without_cu_seqlens(fla: FlaStandIn) -> None:
    fla_of("kda_prefill").prepare(inputs_of("kda_prefill", seqlens="22")).run()
    assert "cu_seqlens" not in fla.calls[0]


def test_copies_of_a_ragged_batch_share_one_cu_seqlens(fla: FlaStandIn) -> None:
    """FLA keeps its table of chunks by identity: a clone each would wait for the device."""
    inputs = inputs_of("kda_prefill")
    for copy in (inputs, inputs.clone(), inputs.clone()):
        fla_of("kda_prefill").prepare(copy).run()
    first = fla.calls[0]["cu_seqlens"]
    assert all(call["cu_seqlens"] is first for call in fla.calls)
    assert first.dtype == torch.int64


@pytest.mark.parametrize("operator", [*PREFILL, "kda_decode"])
def test_no_gradient_is_tracked(fla: FlaStandIn, operator: str) -> None:
    fla_of(operator).prepare(inputs_of(operator)).run()
    assert fla.calls[0]["gradients"] is False


def test_a_state_kept_k_first_is_transposed_once_and_returned_as_a_view(fla: FlaStandIn) -> None:
    call = fla_of("delta_rule").prepare(inputs_of("delta_rule", head_dim=16, value_dim=32))
    state = call.run()["final_state"]
    call.run()
    given = [arguments["initial_state"] for arguments in fla.calls]
    assert given[0] is given[1]
    assert given[0].shape[2:] == (16, 32)
    assert state.shape[2:] == (32, 16)
    assert state.mT.is_contiguous()


def test_beta_of_the_delta_rule_stays_in_fp32(fla: FlaStandIn) -> None:
    fla_of("delta_rule").prepare(inputs_of("delta_rule")).run()
    assert fla.calls[0]["beta"].dtype == torch.float32


@pytest.mark.usefixtures("fla")
def test_only_linear_attention_on_a_ragged_batch_is_kept_out_of_graphs() -> None:
    safe = {
        (name, lengths): fla_of(name).prepare(inputs_of(name, seqlens=lengths)).graph_safe
        for name in PREFILL
        for lengths in ("22", "17+5")
    }
    assert [key for key, value in safe.items() if not value] == [("linear_attention", "17+5")]


@pytest.mark.parametrize("operator", [*PREFILL, "kda_decode"])
def test_dispatch_to_other_packages_is_off_before_fla_is_imported(
    fla: FlaStandIn, operator: str
) -> None:
    fla_of(operator).prepare(inputs_of(operator)).run()
    assert sys.modules["fla.backends"]._DISPATCH_DISABLED
    assert fla_of(operator).provenance()["settings"] == SWITCHES


def test_an_fla_imported_with_dispatch_on_is_refused(fla: FlaStandIn) -> None:
    __import__("fla.backends")
    with pytest.raises(RunFailed, match="FLA_DISABLE_BACKEND_DISPATCH=1"):
        fla_of("kda_prefill").prepare(inputs_of("kda_prefill"))
    assert fla.calls == []


@pytest.mark.usefixtures("fla")
@pytest.mark.parametrize(
    ("operator", "changed", "function"),
    [
        ("kda_prefill", {}, "chunk_kda"),
        ("kda_decode", {}, "fused_recurrent_kda_fwd"),
        ("linear_attention", {"gate": "none"}, "chunk_linear_attn"),
        ("linear_attention", {"gate": "log"}, "chunk_simple_gla"),
    ],
)
def test_the_record_names_the_function_that_ran(
    operator: str, changed: dict[str, Scalar], function: str
) -> None:
    fla_of(operator).prepare(inputs_of(operator, **changed)).run()
    assert f".{function}, Triton" in fla_of(operator).provenance()["dispatched"]


@pytest.mark.parametrize(
    ("operator", "changed", "word"),
    [
        ("kda_prefill", {"state_dtype": "bfloat16"}, "fp32 states"),
        ("linear_attention", {"state_dtype": "float16"}, "fp32 states"),
        ("kda_prefill", {"head_dim": 512}, "256 channels"),
        ("gated_delta_rule", {"head_dim": 512}, "256 channels"),
        ("delta_rule", {"dtype": "float32"}, "refuses fp32"),
    ],
)
def test_what_a_function_can_t_compute_is_unsupported_wherever_it_is_asked(
    operator: str, changed: dict[str, Scalar], word: str
) -> None:
    for device in (CPU, H200):
        found = fla_of(operator).unavailable(point(operator, **changed), device)
        assert found is not None
        assert found.outcome is Outcome.UNSUPPORTED
        assert word in found.reason


@pytest.mark.usefixtures("fla")
def test_linear_attention_takes_keys_of_any_width() -> None:
    params = point("linear_attention", head_dim=512)
    assert fla_of("linear_attention").unavailable(params, H200) is None


@pytest.mark.parametrize("operator", [*PREFILL, "kda_decode"])
def test_without_a_gpu_fla_is_skipped(operator: str) -> None:
    found = fla_of(operator).unavailable(point(operator), CPU)
    assert found is not None
    assert found.outcome is Outcome.SKIPPED


@pytest.mark.parametrize("operator", [*PREFILL, "kda_decode"])
def test_a_missing_fla_is_skipped_with_its_tested_version(
    monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setattr("benchx.ops.packages.find_spec", lambda name: None)
    found = fla_of(operator).unavailable(point(operator), H200)
    assert found is not None
    assert (found.outcome, found.install) == (Outcome.SKIPPED, "pip install fla-core==0.6.0")


@pytest.mark.usefixtures("fla")
def test_an_installed_fla_runs_on_gpus_of_any_vendor() -> None:
    amd = replace(H200, vendor="amd", arch="gfx942")
    for device in (H200, amd):
        assert fla_of("kda_prefill").unavailable(point("kda_prefill"), device) is None


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # of third parties' packages
@pytest.mark.parametrize("function", PARAMETERS)
def test_what_is_installed_takes_the_arguments_of_its_stand_in(function: str) -> None:
    pytest.importorskip("fla")
    real = inspect.signature(inspect.unwrap(load_function(MODULES[function], function)))
    open_ended = any(p.kind is p.VAR_KEYWORD for p in real.parameters.values())
    assert PARAMETERS[function] - set(real.parameters) <= (
        {"A_log", "dt_bias"} if open_ended else set()
    )
