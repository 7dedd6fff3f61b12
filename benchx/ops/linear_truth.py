"""fp64 truth for the linear-attention family, quick and bounded in memory for long prefills."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchx.core.call import Reference
from benchx.ops.linear_family import RECURRENCE_TOKENS, REFERENCE_ELEMENTS
from benchx.ops.linear_inputs import DecodeInputs, LinearInputs
from benchx_kernels import reference_linear

_PER_HEAD = {"q": 1, "k": 1, "v": 1, "g": 1, "beta_logits": 1, "initial_state": 1, "a_log": 0}
_PER_HEAD |= {"dt_bias": 0}


def terms_of(inputs: LinearInputs, dtype: torch.dtype) -> reference_linear.Terms:
    """The terms of the recurrence in `dtype` from raw inputs."""
    return reference_linear.activate(
        inputs.q,
        inputs.k,
        inputs.v,
        inputs.g,
        inputs.beta_logits,
        gate=inputs.gate,
        a_log=inputs.a_log,
        dt_bias=inputs.dt_bias,
        lower_bound=inputs.lower_bound,
        scale=inputs.scale,
        qk_l2norm=inputs.qk_l2norm,
        dtype=dtype,
    )


def sampled_heads(heads: int, elements: int) -> tuple[int, ...] | None:
    """First, middle and last head when q or v hold too many elements; None means all."""
    if elements <= REFERENCE_ELEMENTS or heads <= 3:
        return None
    return (0, heads // 2, heads - 1)


def prefill_truth(inputs: LinearInputs) -> Reference:
    """Truth of a prefill in fp64 from the rounded inputs.

    The token recurrence up to 256 tokens a sequence, the chunked form (chunk 64) beyond; above
    2^23 elements of q or v, three heads only. `method` names both choices.
    """
    count = inputs.v.shape[1]
    heads = sampled_heads(count, max(inputs.q.numel(), inputs.v.numel()))
    chosen = inputs if heads is None else _select(inputs, heads)
    by_token = max(inputs.lengths, default=0) <= RECURRENCE_TOKENS
    form = reference_linear.recurrent if by_token else reference_linear.chunked
    order = reference_linear.block_order(inputs.lengths, 1 if by_token else 64, inputs.device)
    result = form(terms_of(chosen, torch.float64), order, chosen.initial_state)
    method = "fp64 recurrence" if by_token else "fp64 chunked"
    return Reference(
        outputs={"o": result.o, "final_state": result.final_state},
        method=_with_heads(method, heads, count),
        heads=heads,
        head_dims={"o": 1, "final_state": 1},
    )


def decode_truth(inputs: DecodeInputs) -> Reference:
    """Truth of a decode step: the token recurrence in fp64, three heads of a large batch."""
    batch, tokens, count = inputs.v.shape[:3]
    packed = packed_decode(inputs)
    heads = sampled_heads(count, inputs.state.numel())
    chosen = packed if heads is None else _select(packed, heads)
    order = reference_linear.block_order(packed.lengths, 1, inputs.device)
    result = reference_linear.recurrent(
        terms_of(chosen, torch.float64), order, chosen.initial_state
    )
    return Reference(
        outputs={
            "o": result.o.view(batch, tokens, *result.o.shape[1:]),
            "state": result.final_state,
        },
        method=_with_heads("fp64 recurrence", heads, count),
        heads=heads,
        head_dims={"o": 2, "state": 1},
    )


def packed_decode(inputs: DecodeInputs) -> LinearInputs:
    """The same step as a packed batch of B short sequences; shares memory with `inputs`."""
    batch, tokens = inputs.q.shape[:2]
    ends = torch.arange(batch + 1, dtype=torch.int64, device=inputs.device) * tokens
    return LinearInputs(
        q=inputs.q.flatten(0, 1),
        k=inputs.k.flatten(0, 1),
        v=inputs.v.flatten(0, 1),
        g=inputs.g.flatten(0, 1),
        beta_logits=inputs.beta_logits.flatten(0, 1),
        a_log=inputs.a_log,
        dt_bias=inputs.dt_bias,
        gate=inputs.gate,
        lower_bound=inputs.lower_bound,
        scale=inputs.scale,
        qk_l2norm=inputs.qk_l2norm,
        cu_seqlens=ends,
        lengths=(tokens,) * batch,
        initial_state=inputs.state,
        state_dtype=inputs.state.dtype,
    )


def _select(inputs: LinearInputs, heads: tuple[int, ...]) -> LinearInputs:
    index = torch.tensor(heads, device=inputs.device)
    fields = {name: getattr(inputs, name) for name in _PER_HEAD}
    chosen: dict[str, Tensor] = {
        name: value.index_select(_PER_HEAD[name], index)
        for name, value in fields.items()
        if value is not None
    }
    return replace(inputs, **chosen)  # type: ignore[arg-type]


def _with_heads(method: str, heads: tuple[int, ...] | None, count: int) -> str:
    return method if heads is None else f"{method}, heads {'+'.join(map(str, heads))} of {count}"
