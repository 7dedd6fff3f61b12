"""The definition of the linear-attention family: one token after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from .reference_linear_order import BlockOrder
from .reference_linear_terms import Result, Terms


def recurrent(terms: Terms, order: BlockOrder, initial_state: Tensor | None) -> Result:
    """Run the recurrence over a packed batch.

    Per head, with S [V, K]: S <- S diag(exp(log_decay)); S <- S + u k^T, where u = v, or
    beta (v - S k) under the delta rule; o = S q. Decay first, then the update, then the read
    (Kimi Linear, arXiv 2510.26692, section 3; FLA `naive_recurrent_kda`).

    Args:
        terms: Operands, in the dtype to compute in.
        order: `block_order(lengths, 1, device)`.
        initial_state: [N, H, V, K] of any dtype, or None for zeros.
    """
    state = ranked_state(terms, order, initial_state)
    ordered = Terms(
        q=order.gather(terms.q, 0, order.tokens).squeeze(1),
        k=order.gather(terms.k, 0, order.tokens).squeeze(1),
        v=order.gather(terms.v, 0, order.tokens).squeeze(1),
        log_decay=_gathered(order, terms.log_decay),
        beta=_gathered(order, terms.beta),
    )
    out = terms.v.new_empty(order.tokens + 1, *terms.v.shape[1:])
    order.scatter(out, advance(state, ordered, order.counts).unsqueeze(1), 0)
    return Result(o=out[: order.tokens], final_state=by_sequence(state, order))


def advance(state: Tensor, terms: Terms, counts: tuple[int, ...]) -> Tensor:
    """Run the recurrence **in place** on `state` [N, H, V, K]; returns o [T, H, V].

    `terms` are in time-major order: `counts[t]` rows for step t, row n of a step belonging to
    state n. `state` has the terms' dtype.
    """
    decay = None if terms.log_decay is None else terms.log_decay.exp().unsqueeze(2)
    out = torch.empty_like(terms.v)
    begin = 0
    for count in counts:
        rows = slice(begin, begin + count)
        live = state[:count]
        if decay is not None:
            live.mul_(decay[rows])
        beta = None if terms.beta is None else terms.beta[rows]
        _update_and_read(live, terms.q[rows], terms.k[rows], terms.v[rows], beta, out[rows])
        begin += count
    return out


def _update_and_read(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, out: Tensor
) -> None:
    matrices = state.flatten(0, 1)  # [n * H, V, K]
    key = k.flatten(0, 1).unsqueeze(1)  # [n * H, 1, K]
    update = v.flatten(0, 1).unsqueeze(2)  # [n * H, V, 1]
    if beta is not None:
        update = (update - torch.bmm(matrices, key.mT)) * beta.flatten()[:, None, None]
    matrices.baddbmm_(update, key)
    read = torch.bmm(matrices, q.flatten(0, 1).unsqueeze(2))
    out.copy_(read.view_as(out))


def ranked_state(terms: Terms, order: BlockOrder, initial_state: Tensor | None) -> Tensor:
    """A fresh state [N, H, V, K] in the terms' dtype, sequences in order of rank."""
    if initial_state is not None:
        return initial_state.index_select(0, order.sequences).to(terms.v.dtype)
    heads, width = terms.k.shape[1:]
    return terms.v.new_zeros(len(order.sequences), heads, terms.v.shape[2], width)


def by_sequence(state: Tensor, order: BlockOrder) -> Tensor:
    """States in order of rank -> in order of the batch."""
    return torch.empty_like(state).index_copy_(0, order.sequences, state)


def _gathered(order: BlockOrder, x: Tensor | None) -> Tensor | None:
    return None if x is None else order.gather(x, 0, order.tokens).squeeze(1)
