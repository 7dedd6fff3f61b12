"""The definition of the linear-attention family: one token after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from .reference_linear_order import BlockOrder
from .reference_linear_terms import Terms


def recurrent_inplace(state: Tensor, terms: Terms, order: BlockOrder) -> Tensor:
    """Run the recurrence over a packed batch, **in place** on `state`; returns o [T, H, V].

    Per head, with S [V, K]: S <- S diag(exp(log_decay)); S <- S + u k^T, where u = v, or
    beta (v - S k) under the delta rule; o = S q. Decay first, then the update, then the read
    (Kimi Linear, arXiv 2510.26692, section 3; FLA `naive_recurrent_kda`).

    Args:
        state: [N, H, V, K], contiguous, in the terms' dtype, sequences in order of rank.
        terms: Operands, in the dtype to compute in.
        order: `block_order(lengths, 1, device)`.
    """
    q, k, v = (order.gather(x, 0, order.tokens).squeeze(1) for x in (terms.q, terms.k, terms.v))
    beta, log_decay = _gathered(order, terms.beta), _gathered(order, terms.log_decay)
    decay = None if log_decay is None else log_decay.exp().unsqueeze(2)  # [T, H, 1, K or 1]
    read = torch.empty_like(v)
    begin = 0
    for count in order.counts:
        rows = slice(begin, begin + count)
        live = state[:count]
        if decay is not None:
            live.mul_(decay[rows])
        step_beta = None if beta is None else beta[rows]
        _update_and_read(live, q[rows], k[rows], v[rows], step_beta, read[rows])
        begin += count
    out = v.new_empty(order.tokens + 1, *v.shape[1:])
    order.scatter(out, read.unsqueeze(1), 0)
    return out[: order.tokens]


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


def _gathered(order: BlockOrder, x: Tensor | None) -> Tensor | None:
    return None if x is None else order.gather(x, 0, order.tokens).squeeze(1)
