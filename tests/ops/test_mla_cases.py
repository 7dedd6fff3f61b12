"""The adversarial cases of MLA: legal, and each kind of mistake shows in one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import Tensor

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.correctness import judge
from benchx.measure.device import list_devices
from benchx.ops.base import OPERATORS, Unavailable
from benchx.ops.conformance import offences
from benchx.ops.mla_cases import DecodeCase, PrefillCase, decode_cases, prefill_cases
from benchx.ops.mla_inputs import UNUSED_PAGE, DecodeInputs, Expanded, PrefillInputs
from benchx_kernels.reference_mla import causal_attention, expand

CPU = list_devices()[-1]
DECODE, PREFILL = OPERATORS.get("mla_decode"), OPERATORS.get("mla_prefill")
DECODE_CASES = {case.name: case for case in decode_cases(DECODE)}
NARROW: dict[str, Scalar] = {"kv_lora": 64, "rope_dim": 16, "nope_dim": 32, "value_dim": 32}
PREFILL_CASES = {case.name: case for case in prefill_cases(PREFILL)}


@pytest.mark.parametrize("case", DECODE_CASES.values(), ids=DECODE_CASES)
def test_a_decode_case_names_values_that_a_scenario_may_name(case: DecodeCase) -> None:
    assert set(case.params) == set(DECODE.axes)
    assert DECODE.problem(case.params) is None


@pytest.mark.parametrize("case", PREFILL_CASES.values(), ids=PREFILL_CASES)
def test_a_prefill_case_names_values_that_a_scenario_may_name(case: PrefillCase) -> None:
    assert set(case.params) == set(PREFILL.axes)
    assert PREFILL.problem(case.params) is None


@dataclass(frozen=True)
class Mutant:
    """A backend with one mistake."""

    compute: Callable[[DecodeInputs], Tensor] | Callable[[PrefillInputs], Tensor]
    name: str = "mutant"
    operator: str = "mla_decode"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        return None

    def prepare(self, inputs: DecodeInputs | PrefillInputs) -> PreparedCall:
        return PreparedCall(run=lambda: {"o": self.compute(inputs)})  # type: ignore[arg-type]

    def provenance(self) -> dict[str, object]:
        return {}


def decode(
    inputs: DecodeInputs,
    *,
    extra: int = 0,
    scale: float = 1.0,
    shift: int = 0,
    wrap: int | None = None,
    empty: float = 0.0,
    halve: bool = False,
) -> Tensor:
    """Core decode; the keywords are its mistakes.

    `extra` slots read beyond the length, `scale` on the logits, query positions off by `shift`,
    page ids modulo `wrap`, `empty` where there is nothing to see, logits rounded to bf16.
    """
    out = []
    for q, table, length in zip(inputs.q, inputs.block_table, inputs.lengths, strict=True):
        if not length:
            out.append(torch.full((*q.shape[:2], inputs.kv_lora), empty, dtype=torch.float64))
            continue
        pages = table[table != UNUSED_PAGE].long() % (wrap or 1 << 40)
        rows = inputs.kv_cache[pages].flatten(0, 1)[: length + extra].double()
        last = len(rows) - len(q) + torch.arange(len(q)) + shift
        s = torch.einsum("shd,ld->hsl", q.double(), rows) * inputs.scale * scale
        s = s.bfloat16().double() if halve else s
        s = s.masked_fill(torch.arange(len(rows)) > last[:, None], -torch.inf)
        out.append(torch.einsum("hsl,lc->shc", s.softmax(-1), rows[:, : inputs.kv_lora]))
    return torch.stack(out).to(inputs.q.dtype)


@pytest.mark.parametrize(
    ("mistake", "case"),
    [
        ({"extra": 1}, "page edges"),
        ({"scale": 1.03}, "one long sequence"),
        ({"shift": 1}, "2 tokens"),
        ({"shift": -1}, "4 tokens"),
        ({"wrap": 4}, "page edges"),
        ({"empty": torch.nan}, "all empty"),
        ({"empty": 1.0}, "empty in the middle"),
        ({"halve": True}, "large logits"),
    ],
    ids=str,
)
def test_a_mistake_in_decode_shows(mistake: dict[str, float], case: str) -> None:
    inputs = DECODE_CASES[case].make(DECODE, torch.device("cpu"))
    assert offences(DECODE, Mutant(partial(decode)), inputs, CPU) == []
    assert offences(DECODE, Mutant(partial(decode, **mistake)), inputs, CPU) != []


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("mistake", [{"shift": -1}, {"scale": 1.01}], ids=str)
def test_a_masked_key_shows_among_as_many_as_a_run_has(
    mistake: dict[str, float], tokens: int
) -> None:
    """One of 65536 keys that are all alike would change less than the bound allows."""
    known = {name: axis.default for name, axis in DECODE.axes.items()}
    sizes: dict[str, Scalar] = {"heads": 2, "batch": 2, "context": 65536, "tokens": tokens}
    sizes |= NARROW
    params = {name: value for name, value in known.items() if value is not None} | sizes
    inputs = DECODE.make_inputs(params, seed=1, device=torch.device("cpu"))
    specs, truth = DECODE.output_specs(inputs), DECODE.reference(inputs)

    def reason(**mistakes: float) -> str | None:
        outputs = {"o": decode(inputs, **mistakes)}  # type: ignore[arg-type]
        return judge(outputs, specs, truth, DECODE.max_rms_ratio).reason

    assert reason() is None
    assert "rms ratio" in str(reason(**mistake))


@pytest.mark.parametrize("projections", [False, True])
def test_a_key_masked_behind_a_long_prefix_shows(projections: bool) -> None:
    known = {name: axis.default for name, axis in PREFILL.axes.items()}
    sizes: dict[str, Scalar] = {"heads": 2, "seqlens": "3+0+5", "prefix": 65536,
                                "projections": projections}  # fmt: skip
    sizes |= NARROW
    params = {name: value for name, value in known.items() if value is not None} | sizes
    inputs = PREFILL.make_inputs(params, seed=1, device=torch.device("cpu"))
    specs, truth = PREFILL.output_specs(inputs), PREFILL.reference(inputs)
    given = inputs.operands
    if not isinstance(given, Expanded):
        weights = given.weights
        given = Expanded(*expand(given.c_kv, given.k_pe, weights.w_uk, weights.w_uv))

    def reason(masked: int) -> str | None:
        out, q_start, k_start = [], 0, 0
        for tokens, keys in zip(inputs.q_lengths, inputs.kv_lengths, strict=True):
            seen, q = slice(k_start, k_start + keys - masked), inputs.q[q_start : q_start + tokens]
            out.append(causal_attention(q, given.k[seen], given.v[seen], scale=inputs.scale))
            q_start, k_start = q_start + tokens, k_start + keys
        outputs = {"o": torch.cat(out).to(inputs.q.dtype)}
        return judge(outputs, specs, truth, PREFILL.max_rms_ratio).reason

    assert reason(0) is None
    assert "rms ratio" in str(reason(1))


def prefill(inputs: PrefillInputs, *, from_start: bool = False, leak: bool = False) -> Tensor:
    """Core prefill; the diagonal aligned to the start, or sequences seeing those before them."""
    given = inputs.operands
    assert isinstance(given, Expanded)
    out, q_start, k_start = [], 0, 0
    for tokens, keys in zip(inputs.q_lengths, inputs.kv_lengths, strict=True):
        first = 0 if leak else k_start
        seen = slice(first, k_start + (tokens if from_start else keys))
        q = inputs.q[q_start : q_start + tokens]
        out.append(causal_attention(q, given.k[seen], given.v[seen], scale=inputs.scale))
        q_start, k_start = q_start + tokens, k_start + keys
    return torch.cat(out).to(inputs.q.dtype)


@pytest.mark.parametrize(
    ("mistake", "case"),
    [({"from_start": True}, "prefix of 63"), ({"leak": True}, "empty in the middle")],
    ids=str,
)
def test_a_mistake_in_prefill_shows(mistake: dict[str, bool], case: str) -> None:
    inputs = PREFILL_CASES[case].make(PREFILL, torch.device("cpu"))
    assert offences(PREFILL, Mutant(partial(prefill)), inputs, CPU) == []
    assert offences(PREFILL, Mutant(partial(prefill, **mistake)), inputs, CPU) != []


def test_a_changed_cache_shows() -> None:
    def spoil(inputs: DecodeInputs) -> Tensor:
        out = decode(inputs)
        inputs.kv_cache[inputs.block_table[0, 0], 0] = 0
        return out

    inputs = replace(DECODE_CASES["one token"].make(DECODE, torch.device("cpu")))
    found = offences(DECODE, Mutant(spoil), inputs, CPU)
    assert "first run: changed input kv_cache" in found
