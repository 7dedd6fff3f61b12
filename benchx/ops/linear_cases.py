"""Inputs on which kernels of the linear-attention family are known to break.

Sources: public reports against FLA, FlashKDA, cuDNN, FlashInfer, vLLM and sglang; the comments
name those that a case reproduces. Every case is right when the fp64 recurrence is matched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

import torch

from benchx.core.axes import Params, Scalar
from benchx.ops.linear_inputs import DecodeInputs, LinearInputs

if TYPE_CHECKING:
    from benchx.ops.base import Operator

C_ = TypeVar("C_", LinearInputs, DecodeInputs)

SEED = 20260101
BETA_NEAR_ONE = 8.0  # as a logit
NO_DECAY, STRONG_DECAY = -12.0, 12.0  # gate logits; bounded: log decay near 0 and at the bound
MASK = -1000.0  # log decay by which callers reset the state

LENGTHS = {
    "1 token": "1",
    "15 tokens": "15",
    "16 tokens": "16",
    "17 tokens": "17",
    "63 tokens": "63",
    "65 tokens": "65",
    "300 tokens": "300",
    "ragged": "1+15+16+17+63+65",
    # A last sequence of one token: cudnn-frontend#1013, illegal access.
    "tail of one token": "128+1",
    "chunk and one token": "129",
    # Empty sequences: FlashKDA#24 and #25 left the final state unwritten or stale.
    "empty in front": "0+17+65",
    "empty in the middle": "17+0+0+65",
    "empty at the end": "65+17+0",
    "all empty": "0+0",
    "long before short": "200+1+0+40",
}
SHAPES: Mapping[str, dict[str, Scalar]] = {
    "1 head": {"heads": 1},
    "5 heads": {"heads": 5},
    "width 64": {"head_dim": 64, "value_dim": 64},
    # Widths that are no power of two: fla#1134, an unmasked gate load.
    "width 60": {"head_dim": 60, "value_dim": 60},
    "wide values": {"head_dim": 64, "value_dim": 128},
    "bf16 state": {"state_dtype": "bfloat16"},
    "fp16": {"dtype": "float16"},
    "fp32": {"dtype": "float32"},
}


@dataclass(frozen=True, kw_only=True)
class Case(Generic[C_]):
    """One adversarial set of inputs.

    Attributes:
        name: What is adversarial about it.
        params: All axes, so that a backend can say whether it is available.
        change: Applied to the seeded inputs of the point.
    """

    name: str
    params: Params
    change: Callable[[C_], C_]

    def make(self, operator: Operator[C_], device: torch.device) -> C_:
        """The inputs on `device`."""
        return self.change(operator.make_inputs(self.params, seed=SEED, device=device))


def prefill_cases(
    operator: Operator[LinearInputs], *, width: int = 128
) -> Iterator[Case[LinearInputs]]:
    """All cases of one prefill operator, with every form of gate it takes.

    `width` is K = V where a case is not about widths; a small one saves time on a CPU.
    """
    base = _base_point(operator, width, {"heads": 3, "seqlens": "65+17"})
    for name, lengths in LENGTHS.items():
        yield _case(name, base | {"seqlens": lengths})
    for name, shape in SHAPES.items():
        yield _case(name, base | shape)
    yield _case("no initial state", base | {"initial_state": False, "seqlens": "0+65+17"})
    yield _case("normalised outside", base | {"qk_l2norm": False})
    for words, point in _by_gate(operator, base | {"seqlens": "130+17"}):
        yield _case(f"realistic{words}", point)
        # Near-collinear keys without decay: FlashKDA#34 and vllm-project/FlashKDA#10, NaN from
        # an inverse in fp16; cudnn-frontend#1051, NaN and Inf.
        yield _case(f"identical keys{words}", point, identical_keys)
        yield _case(f"correlated keys{words}", point, correlated_keys)
        yield from _gate_cases(operator, words, point)


def decode_cases(
    operator: Operator[DecodeInputs], *, width: int = 128
) -> Iterator[Case[DecodeInputs]]:
    """All cases of KDA decode, with every form of gate; `width` as in `prefill_cases`."""
    base = _base_point(operator, width, {"heads": 3, "batch": 2})
    for batch, tokens in ((1, 1), (5, 1), (17, 1), (1, 2), (3, 5)):
        name = f"batch {batch}, tokens {tokens}"
        yield _case(name, base | {"batch": batch, "tokens": tokens})
    for name, shape in SHAPES.items():
        yield _case(name, base | shape)
    yield _case("bf16 state, 3 tokens", base | {"state_dtype": "bfloat16", "tokens": 3})
    for words, point in _by_gate(operator, base | {"tokens": 4}):
        yield _case(f"identical keys{words}", point, identical_keys)
        yield from _gate_cases(operator, words, point)


def beyond_int32(operator: Operator[LinearInputs]) -> Case[LinearInputs]:
    """More than 2^31 elements in q (fla#1080), 22 GiB of inputs: not among the others."""
    values: dict[str, Scalar] = {"heads": 128, "seqlens": "100000+40000"}
    return _case("beyond 2^31 elements", _base_point(operator, 128, values))


def identical_keys(inputs: C_) -> C_:
    """Every token has the first token's key, beta near 1 and almost no decay."""
    k = inputs.k.clone()
    k[:] = inputs.k.flatten(0, -3)[0]
    return replace(_remembering(inputs), k=k)


def correlated_keys(inputs: LinearInputs) -> LinearInputs:
    """Keys that share most of their direction, beta near 1 and little decay."""
    base = torch.nn.functional.normalize(inputs.k[:1].float(), dim=-1)
    own = torch.nn.functional.normalize(inputs.k.float(), dim=-1)
    keys = torch.nn.functional.normalize(0.9 * base + 0.4 * own, dim=-1)
    return replace(_remembering(inputs), k=keys.to(inputs.k.dtype))


def gates_near_zero(inputs: C_) -> C_:
    """Almost no decay: the state remembers everything."""
    if inputs.g is None:
        return inputs
    small = inputs.g * 1e-4 if inputs.gate == "log" else torch.full_like(inputs.g, NO_DECAY)
    return replace(inputs, g=small)


def gates_at_the_bound(inputs: C_) -> C_:
    """The strongest decay on every token: the bound itself, or what the form makes of +12."""
    if inputs.g is None:
        return inputs
    strongest = inputs.lower_bound if inputs.gate == "log" else STRONG_DECAY
    return replace(inputs, g=torch.full_like(inputs.g, strongest))


def masked_tokens(inputs: C_) -> C_:
    """Log decay -1000 on every fifth token, weak decay on the others."""
    if inputs.g is None:
        return inputs
    g = inputs.g * 0.01
    g.flatten(0, inputs.v.dim() - 3)[::5] = MASK
    return replace(inputs, g=g)


def _remembering(inputs: C_) -> C_:
    weak = gates_near_zero(inputs)
    if weak.beta_logits is None:
        return weak
    return replace(weak, beta_logits=torch.full_like(weak.beta_logits, BETA_NEAR_ONE))


def _gate_cases(operator: Operator[C_], words: str, point: Params) -> Iterator[Case[C_]]:
    gate = point.get("gate", "none")
    if gate == "none":
        return
    yield _case(f"gates near zero{words}", point, gates_near_zero)
    yield _case(f"gates at the bound{words}", point, gates_at_the_bound)
    if gate == "log":
        yield _case(f"masked tokens{words}", point, masked_tokens)


def _by_gate(operator: Operator[C_], point: dict[str, Scalar]) -> Iterator[tuple[str, Params]]:
    if "gate" not in operator.axes:
        yield "", point
        return
    for gate in operator.axes["gate"].choices:
        yield f", {gate} gate", point | {"gate": gate}


def _base_point(operator: Operator[C_], width: int, values: dict[str, Scalar]) -> dict[str, Scalar]:
    defaults = {name: axis.default for name, axis in operator.axes.items()}
    known = {name: value for name, value in defaults.items() if value is not None}
    return known | {"head_dim": width, "value_dim": width} | values


def _unchanged(inputs: C_) -> C_:
    return inputs


def _case(name: str, params: Params, change: Callable[[C_], C_] = _unchanged) -> Case[C_]:
    return Case(name=name, params=dict(params), change=change)
