"""fp64 truth for the linear-attention family, quick and bounded in memory for long prefills."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchx.core.call import Reference
from benchx.ops.checked_heads import checked_heads, with_heads
from benchx.ops.linear_family import RECURRENCE_TOKENS
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


REFERENCE_ELEMENTS = {"cuda": 2**26, "cpu": 2**23}
"""Of q, v or the states, as many as the truth is computed of there: half a GiB for each of about
ten fp64 tensors on a GPU, a second of time on a CPU. Beyond them it covers some of the heads."""


def prefill_truth(inputs: LinearInputs, turn: int = 0) -> Reference:
    """Truth of a prefill in fp64 from the rounded inputs; `turn` as in `checked_heads`.

    The token recurrence up to 256 tokens a sequence, the chunked form (chunk 64) beyond; of more
    elements than `REFERENCE_ELEMENTS`, some heads only. `method` names both choices.
    """
    count = inputs.v.shape[1]
    heads = checked_heads(count, _share(inputs.device, inputs.q, inputs.v), turn)
    chosen = inputs if heads is None else _select(inputs, heads)
    by_token = max(inputs.lengths, default=0) <= RECURRENCE_TOKENS
    form = reference_linear.recurrent if by_token else reference_linear.chunked
    order = reference_linear.block_order(inputs.lengths, 1 if by_token else 64, inputs.device)
    result = form(terms_of(chosen, torch.float64), order, chosen.initial_state)
    method = "fp64 recurrence" if by_token else "fp64 chunked"
    return Reference(
        outputs={"o": result.o, "final_state": result.final_state},
        method=with_heads(method, heads, count),
        heads=heads,
        head_dims={"o": 1, "final_state": 1},
    )


def decode_truth(inputs: DecodeInputs, turn: int = 0) -> Reference:
    """Truth of a decode step: the token recurrence in fp64, of some heads of a large batch."""
    batch, tokens, count = inputs.v.shape[:3]
    packed = packed_decode(inputs)
    heads = checked_heads(count, _share(inputs.device, inputs.state), turn)
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
        method=with_heads("fp64 recurrence", heads, count),
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


def _share(device: torch.device, *tensors: Tensor) -> float:
    """Of the heads, what the truth can be computed of."""
    return REFERENCE_ELEMENTS[device.type] / max(1, *(tensor.numel() for tensor in tensors))
