"""Argument checks of the kernels: a clear error before any launch."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from benchx_kernels._arguments import check_kind, number
from benchx_kernels._forms import Described, form_or_none
from benchx_kernels.device.gates import CODES
from benchx_kernels.gate import Gate

_WIDTHS = (64, 128, 256)
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def require(condition: bool, message: str) -> None:
    """Raise ValueError(message) unless the condition holds."""
    if not condition:
        raise ValueError(message)


def check_tensor(
    name: str, value: Described | None, shape: tuple[int, ...], like: Described,
    dtypes: tuple[torch.dtype, ...],
) -> None:  # fmt: skip
    """Shape, dtype, device and contiguity of one argument; None is let through."""
    if value is None:
        return
    # No `require`: writing the sentences out takes ten times as long as finding them untrue.
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} is {tuple(value.shape)}; expected {shape}")
    if value.dtype not in dtypes:
        raise ValueError(f"{name} is {value.dtype}; expected one of {dtypes}")
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device}; q is on {like.device}")
    if not value.is_contiguous():
        raise ValueError(f"{name} has strides {value.stride()}; expected contiguous")


def _check_widths(key_dim: int, value_dim: int) -> None:
    require(key_dim in _WIDTHS, f"K is {key_dim}; this kernel has {_WIDTHS}")
    require(value_dim in _WIDTHS, f"V is {value_dim}; this kernel has {_WIDTHS}")


def check_blocks(block_v: int, *widths: int) -> None:
    """Raise ValueError where blocks of columns would leave a rest that nobody computes."""
    for width in widths:
        require(width % block_v == 0, f"block_v is {block_v}; it does not divide {width} columns")


class GateForm(NamedTuple):
    """A gate by the forms of its tensors; attributes as in `Gate`."""

    kind: str
    g: Described | None
    a_log: Described | None
    dt_bias: Described | None
    lower_bound: float

    @classmethod
    def of(cls, gate: Gate) -> GateForm:
        """The forms of a gate's tensors."""
        if type(gate) is not Gate:  # asked here: in a decode step calls would take longer
            check_kind("gate", gate, Gate)
        if type(gate.kind) is not str:
            check_kind("the gate's kind", gate.kind, str)
        lower_bound = gate.lower_bound
        if type(lower_bound) is not float:
            lower_bound = number("lower_bound", lower_bound)
        g, a_log, dt_bias = (form_or_none(x) for x in (gate.g, gate.a_log, gate.dt_bias))
        return cls(gate.kind, g, a_log, dt_bias, lower_bound)


def _check_learned(gate: GateForm, heads: int, key_dim: int, like: Described) -> None:
    if gate.kind not in ("bounded", "softplus"):
        return
    learned = gate.a_log is not None and gate.dt_bias is not None
    require(learned, f"gate {gate.kind!r} needs a_log and dt_bias")
    check_tensor("a_log", gate.a_log, (heads,), like, (torch.float32,))
    check_tensor("dt_bias", gate.dt_bias, (heads, key_dim), like, (torch.float32,))
    require(gate.lower_bound < 0, f"lower_bound is {gate.lower_bound}; expected a negative one")


class Packed(Protocol):
    """What is checked of a batch."""

    @property
    def cu_seqlens(self) -> Described:
        """Where the sequences begin."""

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""

    @property
    def sequences(self) -> int:
        """How many there are."""


def check_prefill(
    q: Described,
    k: Described,
    v: Described,
    beta: Described | None,
    gate: GateForm,
    batch: Packed,
) -> None:
    """Tokens, gate and batch of a chunked prefill; raises ValueError."""
    require(q.dim() == 3, f"q has {q.dim()} dimensions; expected [T, H, K]")
    require(v.dim() == 3, f"v has {v.dim()} dimensions; expected [T, H, V]")
    tokens, heads, key_dim = q.shape
    _check_widths(key_dim, v.shape[2])
    check_tensor("q", q, (tokens, heads, key_dim), q, _FLOATS)
    check_tensor("k", k, (tokens, heads, key_dim), q, _FLOATS)
    check_tensor("v", v, (tokens, heads, v.shape[2]), q, _FLOATS)
    check_tensor("beta", beta, (tokens, heads), q, _FLOATS)
    require(gate.kind in CODES, f"gate {gate.kind!r} is none of {', '.join(CODES)}")
    missing = (gate.g is None) != (gate.kind == "none")
    require(not missing, f"gate {gate.kind!r} with g {'un' * (gate.g is None)}set")
    width = (tokens, heads) if gate.kind == "scalar" else (tokens, heads, key_dim)
    check_tensor("g", gate.g, width, q, _FLOATS)
    _check_learned(gate, heads, key_dim, q)
    require(batch.tokens == tokens, f"the batch holds {batch.tokens} tokens, q {tokens}")
    check_tensor("cu_seqlens", batch.cu_seqlens, (batch.sequences + 1,), q, (torch.int64,))


def check_states(
    initial: Described | None, final: Described | None, sequences: int, q: Described,
    value_dim: int, v_first: bool,
) -> None:  # fmt: skip
    """Shapes and dtypes of the initial and final state; raises ValueError."""
    heads, key_dim = q.shape[1], q.shape[2]
    inner = (value_dim, key_dim) if v_first else (key_dim, value_dim)
    shape = (sequences, heads, *inner)
    check_tensor("initial_state", initial, shape, q, (torch.float32, torch.bfloat16))
    check_tensor("final_state", final, shape, q, (torch.float32, torch.bfloat16))


def check_decode(
    q: Described,
    k: Described,
    v: Described,
    beta: Described,
    state: Described,
    gate: GateForm,
    slots: Described | None,
    *,
    v_first: bool,
) -> None:
    """Everything `kda_decode` needs; raises ValueError."""
    require(q.dim() == 4, f"q has {q.dim()} dimensions; expected [B, S, H, K]")
    require(v.dim() == 4, f"v has {v.dim()} dimensions; expected [B, S, H, V]")
    batch, tokens, heads, key_dim = q.shape
    value_dim = v.shape[3]
    _check_widths(key_dim, value_dim)
    require(gate.kind in ("bounded", "softplus", "log"), f"no decode for gate {gate.kind!r}")
    require(gate.g is not None, f"gate {gate.kind!r} needs g")
    for name, value in (("q", q), ("k", k), ("g", gate.g)):
        check_tensor(name, value, (batch, tokens, heads, key_dim), q, _FLOATS)
    check_tensor("v", v, (batch, tokens, heads, value_dim), q, _FLOATS)
    check_tensor("beta", beta, (batch, tokens, heads), q, _FLOATS)
    _check_learned(gate, heads, key_dim, q)
    inner = (value_dim, key_dim) if v_first else (key_dim, value_dim)
    require(state.dim() == 4, f"state has {state.dim()} dimensions; expected 4")
    pool = batch if slots is None else state.shape[0]
    require(pool > 0 or batch == 0, f"the pool of states is empty; {batch} sequences need slots")
    check_tensor("state", state, (pool, heads, *inner), q, (torch.float32, torch.bfloat16))
    check_tensor("slots", slots, (batch,), q, (torch.int32, torch.int64))
