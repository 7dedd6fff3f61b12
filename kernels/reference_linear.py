"""Torch references of the linear-attention family: linear attention, delta rule, gated, KDA.

One implementation with options: a gate per channel (KDA), per head (gated delta rule), or none
(delta rule); without beta there is no delta rule ((gated) linear attention). `recurrent` is the
definition, `chunked` the WY form that equals it; both take packed batches and any float dtype.

    terms = activate(q, k, v, g, beta_logits, gate="bounded", ..., dtype=torch.float64)
    order = block_order(lengths, 64, q.device)
    result = chunked(terms, order, initial_state)
"""

from __future__ import annotations

from torch import Tensor

from .reference_linear_chunked import chunked_inplace
from .reference_linear_order import BlockOrder, block_order
from .reference_linear_recurrent import recurrent_inplace
from .reference_linear_terms import Result, Terms, activate, l2_normalised, log_decay

__all__ = [
    "BlockOrder",
    "Result",
    "Terms",
    "activate",
    "block_order",
    "chunked",
    "chunked_inplace",
    "l2_normalised",
    "log_decay",
    "recurrent",
    "recurrent_inplace",
]


def recurrent(terms: Terms, order: BlockOrder, initial_state: Tensor | None) -> Result:
    """The token recurrence from `initial_state` [N, H, V, K] (any dtype; None is zeros).

    `order` is `block_order(lengths, 1, device)`. `initial_state` is left as it was.
    """
    state = _ranked_state(terms, order, initial_state)
    return Result(o=recurrent_inplace(state, terms, order), final_state=_unranked(state, order))


def chunked(terms: Terms, order: BlockOrder, initial_state: Tensor | None) -> Result:
    """The chunked form of the same; `order` is `block_order(lengths, chunk, device)`."""
    state = _ranked_state(terms, order, initial_state)
    return Result(o=chunked_inplace(state, terms, order), final_state=_unranked(state, order))


def _ranked_state(terms: Terms, order: BlockOrder, initial_state: Tensor | None) -> Tensor:
    if initial_state is not None:
        return initial_state.index_select(0, order.sequences).to(terms.v.dtype)
    heads, width = terms.k.shape[1:]
    return terms.v.new_zeros((len(order.sequences), heads, terms.v.shape[2], width))


def _unranked(state: Tensor, order: BlockOrder) -> Tensor:
    return state.new_empty(state.shape).index_copy_(0, order.sequences, state)
