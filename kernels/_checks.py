"""Argument checks of the kernels: a clear error before any launch."""

from __future__ import annotations

import torch

from benchx_kernels.batch import Batch

_WIDTHS = (64, 128, 256)
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def require(condition: bool, message: str) -> None:
    """Raise ValueError(message) unless the condition holds."""
    if not condition:
        raise ValueError(message)


def check_tensor(
    name: str, value: torch.Tensor | None, shape: tuple[int, ...], like: torch.Tensor,
    dtypes: tuple[torch.dtype, ...],
) -> None:  # fmt: skip
    """Shape, dtype, device and contiguity of one argument; None is let through."""
    if value is None:
        return
    require(tuple(value.shape) == shape, f"{name} is {tuple(value.shape)}; expected {shape}")
    require(value.dtype in dtypes, f"{name} is {value.dtype}; expected one of {dtypes}")
    require(value.device == like.device, f"{name} is on {value.device}; q is on {like.device}")
    require(value.is_contiguous(), f"{name} has strides {value.stride()}; expected contiguous")


def check_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor | None,
    gate: str,
    gate_tensors: tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None],
    batch: Batch,
) -> None:
    """Tokens, gate (g, a_log, dt_bias) and batch of a chunked prefill; raises ValueError."""
    g, a_log, dt_bias = gate_tensors
    require(q.dim() == 3, f"q has {q.dim()} dimensions; expected [T, H, K]")
    require(v.dim() == 3, f"v has {v.dim()} dimensions; expected [T, H, V]")
    tokens, heads, key_dim = q.shape
    value_dim = v.shape[2]
    require(key_dim in _WIDTHS, f"K is {key_dim}; this kernel has {_WIDTHS}")
    require(value_dim in _WIDTHS, f"V is {value_dim}; this kernel has {_WIDTHS}")
    check_tensor("q", q, (tokens, heads, key_dim), q, _FLOATS)
    check_tensor("k", k, (tokens, heads, key_dim), q, _FLOATS)
    check_tensor("v", v, (tokens, heads, value_dim), q, _FLOATS)
    check_tensor("beta", beta, (tokens, heads), q, _FLOATS)
    require((g is None) == (gate == "none"), f"gate {gate!r} with g {'un' * (g is None)}set")
    width = (tokens, heads) if gate == "scalar" else (tokens, heads, key_dim)
    check_tensor("g", g, width, q, _FLOATS)
    if gate in ("bounded", "softplus"):
        require(a_log is not None and dt_bias is not None, f"gate {gate!r} needs a_log and dt_bias")
        check_tensor("a_log", a_log, (heads,), q, (torch.float32,))
        check_tensor("dt_bias", dt_bias, (heads, key_dim), q, (torch.float32,))
    cu_seqlens = batch.cu_seqlens
    require(batch.tokens == tokens, f"the batch holds {batch.tokens} tokens, q {tokens}")
    require(cu_seqlens.device == q.device, f"cu_seqlens on {cu_seqlens.device}; q on {q.device}")


def check_states(
    initial: torch.Tensor | None, final: torch.Tensor | None, batch: Batch, q: torch.Tensor,
    value_dim: int, v_first: bool,
) -> None:  # fmt: skip
    """Shapes and dtypes of the initial and final state; raises ValueError."""
    heads, key_dim = q.shape[1], q.shape[2]
    inner = (value_dim, key_dim) if v_first else (key_dim, value_dim)
    shape = (len(batch.lengths), heads, *inner)
    check_tensor("initial_state", initial, shape, q, (torch.float32, torch.bfloat16))
    check_tensor("final_state", final, shape, q, (torch.float32, torch.bfloat16))
