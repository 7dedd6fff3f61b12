"""A stack's attention, computed by the backends of the operators.

In prefill a backend is prepared for every call, and must not wait for the device there: what
depends on lengths only is made once for all layers and calls (FlashInfer plans each time all the
same, which shows as `host_bound`). In decode each layer is prepared once, on buffers that the
operands are copied to (a few kilobytes a sequence), as a server does that replays a captured step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from benchx.ops import linear_inputs, mla_inputs
from benchx.ops.base import Backend

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from benchx.core.call import Tensors
    from benchx_kernels.model_attention import KdaCall, MlaCall

from benchx.ops.model_inputs import PAGE


@dataclass(frozen=True)
class _Bound:
    """A decode call of one layer on buffers of its own."""

    inputs: Any
    run: Callable[[], Tensors]


class OperatorAttention:
    """An `Attention` of the stack; one for each cache.

    Args:
        kda: Backend of `kda_prefill` or `kda_decode`, or None without such layers.
        mla: Backend of `mla_prefill` or `mla_decode`, or None without such layers.
    """

    def __init__(self, kda: Backend[Any] | None, mla: Backend[Any] | None) -> None:
        self._kda, self._mla = kda, mla
        self._bound: dict[tuple[int, int], _Bound] = {}

    def kda_prefill(self, call: KdaCall) -> Tensor:
        """[B, S, H, V] of one layer; its state moves on."""
        assert self._kda is not None
        inputs = _linear_inputs(call)
        outputs = self._kda.prepare(inputs).run()
        call.state.copy_(outputs["final_state"])
        return outputs["o"].view(call.v.shape)

    def kda_decode(self, call: KdaCall) -> Tensor:
        """[B, S, H, V] of one layer; its state is updated in place by the backend."""
        assert self._kda is not None
        bound = self._bound.get((call.layer, 0))
        if bound is None:
            bound = self._bound[call.layer, 0] = _bind(self._kda, _kda_buffers(call))
        for name in ("q", "k", "v", "g"):
            getattr(bound.inputs, name).copy_(getattr(call, name))
        bound.inputs.beta_logits.copy_(call.beta)
        return bound.run()["o"]

    def mla_prefill(self, call: MlaCall) -> Tensor:
        """[B, S, H, V] of one layer."""
        assert self._mla is not None
        assert call.k is not None
        assert call.v is not None
        sequences, tokens = call.q.shape[:2]
        q_lengths, kv_lengths = (tokens,) * sequences, (call.tokens,) * sequences
        inputs = mla_inputs.PrefillInputs(
            q=call.q.flatten(0, 1),
            k=call.k.flatten(0, 1),
            v=call.v.flatten(0, 1),
            cu_seqlens_q=_offsets(sequences, tokens, call.q.device).int(),
            cu_seqlens_k=_offsets(sequences, call.tokens, call.q.device).int(),
            q_lengths=q_lengths,
            kv_lengths=kv_lengths,
            scale=call.shape.qk_dim**-0.5,
        )
        o = self._mla.prepare(inputs).run()["o"]
        return o.view(*call.q.shape[:3], -1)

    def mla_decode(self, call: MlaCall) -> Tensor:
        """[B, S, H, C] of one layer."""
        assert self._mla is not None
        key = (call.layer, call.tokens)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = _bind(self._mla, _mla_buffers(call))
        bound.inputs.q.copy_(call.q)
        return bound.run()["o"]


def _bind(backend: Backend[Any], inputs: Any) -> _Bound:  # noqa: ANN401 - either kind of inputs
    """Only `run` is kept: the copy of the state that `reset` holds would double it."""
    return _Bound(inputs, backend.prepare(inputs).run)


def _linear_inputs(call: KdaCall) -> linear_inputs.LinearInputs:
    sequences, tokens = call.q.shape[:2]
    return linear_inputs.LinearInputs(
        q=call.q.flatten(0, 1),
        k=call.k.flatten(0, 1),
        v=call.v.flatten(0, 1),
        g=call.g.flatten(0, 1),
        beta_logits=call.beta.flatten(0, 1),
        a_log=call.a_log,
        dt_bias=call.dt_bias,
        gate=call.shape.gate,
        lower_bound=call.shape.lower_bound,
        scale=call.shape.head_dim**-0.5,
        qk_l2norm=True,
        cu_seqlens=_offsets(sequences, tokens, call.q.device),
        lengths=(tokens,) * sequences,
        initial_state=call.state,
        state_dtype=call.state.dtype,
    )


def _kda_buffers(call: KdaCall) -> linear_inputs.DecodeInputs:
    return linear_inputs.DecodeInputs(
        q=call.q.clone(),
        k=call.k.clone(),
        v=call.v.clone(),
        g=call.g.clone(),
        beta_logits=call.beta.clone(),
        a_log=call.a_log,
        dt_bias=call.dt_bias,
        gate=call.shape.gate,
        lower_bound=call.shape.lower_bound,
        scale=call.shape.head_dim**-0.5,
        qk_l2norm=True,
        state=call.state,
    )


def _mla_buffers(call: MlaCall) -> mla_inputs.DecodeInputs:
    """The cache as pages in order: sequence b owns pages b x n to (b + 1) x n."""
    import torch

    sequences, capacity, width = call.rows.shape
    pages = torch.arange(sequences * capacity // PAGE, dtype=torch.int32, device=call.q.device)
    lengths = (call.tokens,) * sequences
    return mla_inputs.DecodeInputs(
        q=call.q.clone(),
        kv_cache=call.rows.view(-1, PAGE, width),
        block_table=pages.view(sequences, -1),
        seqlens=torch.tensor(lengths, dtype=torch.int32, device=call.q.device),
        lengths=lengths,
        kv_lora=call.shape.kv_lora,
        scale=call.shape.qk_dim**-0.5,
    )


@cache
def _offsets(sequences: int, tokens: int, device: torch.device) -> Tensor:
    """int64 [B + 1] on the device, made once: every layer of a step asks for the same."""
    import torch

    return torch.arange(sequences + 1, dtype=torch.int64, device=device) * tokens
