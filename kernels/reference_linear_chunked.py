"""The chunked (WY) form of the linear-attention family, safe for any log decay <= 0.

Inside a chunk a decay is always the exponential of a sum of log decays between two tokens, so it
is at most 1. Splitting it into exp(G_i) and exp(-G_j) would overflow once the decay is strong
(vllm-project/vllm#43833); subtracting two long sums would cancel once one token masks all (-1000).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .reference_linear_order import BlockOrder, Step
from .reference_linear_terms import Terms

SPAN_ELEMENTS = 2**24
"""Most elements of q that are worked on at once; bounds the memory beyond inputs and outputs."""


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """What does not depend on the state, for m chunks of C tokens; G = sum of log decays so far.

    Attributes:
        reads: [m, H, C or 2C, K]: q exp(G), below it (delta rule) the pseudo keys W.
        values: [m, H, C, V]: pseudo values, or v without the delta rule.
        attention: [m, H, C, C]: lower triangle of q k^T, decayed.
        keys: [m, H, C, K]: k exp(G_last - G).
        decay: [m, H, 1, K or 1]: exp(G_last), or None without a gate.
    """

    reads: Tensor
    values: Tensor
    attention: Tensor
    keys: Tensor
    decay: Tensor | None


def chunked_inplace(state: Tensor, terms: Terms, order: BlockOrder) -> Tensor:
    """Compute what `recurrent_inplace` defines, a chunk at a time (arXiv 2510.26692, eq. 6-9).

    Args:
        state: [N, H, V, K], in the terms' dtype, sequences in order of rank; updated in place.
        terms: Operands, in the dtype to compute in.
        order: `block_order(lengths, chunk, device)`; the chunk is a power of two.

    Returns:
        o [T, H, V].

    Raises:
        ValueError: When the chunk is not a power of two.
    """
    if order.block & (order.block - 1):
        raise ValueError(f"chunk must be a power of two, got {order.block}")
    out = terms.v.new_empty(order.tokens + 1, *terms.v.shape[1:])
    per_block = order.block * terms.k.shape[1] * max(terms.k.shape[2], terms.v.shape[2])
    for span in order.spans(max(1, SPAN_ELEMENTS // per_block)):
        blocks = _prepare(terms, order, span)
        read = torch.empty_like(blocks.values)
        for step in span:
            _advance(state[step.ranks], blocks, _within(span, step), read)
        order.scatter(out, read.transpose(1, 2), span[0].start)
    return out[: order.tokens]


def _within(span: tuple[Step, ...], step: Step) -> slice:
    return slice(step.start - span[0].start, step.stop - span[0].start)


def _advance(state: Tensor, blocks: _Blocks, part: slice, read: Tensor) -> None:
    """One chunk further, in place on `state` [n, H, V, K]; writes `read[part]` [n, H, C, V]."""
    values, attention = blocks.values[part], blocks.attention[part]
    from_state = blocks.reads[part] @ state.mT  # [n, H, C or 2C, V]
    chunk = values.shape[2]
    if from_state.shape[2] > chunk:
        values = values - from_state[:, :, chunk:]
    torch.add(from_state[:, :, :chunk], attention @ values, out=read[part])
    if blocks.decay is not None:
        state.mul_(blocks.decay[part])
    state.add_(values.mT @ blocks.keys[part])


def _prepare(terms: Terms, order: BlockOrder, span: tuple[Step, ...]) -> _Blocks:
    def by_head(x: Tensor) -> Tensor:  # [T, H, ...] -> [m, H, C, ...]
        return order.gather(x, span[0].start, span[-1].stop).transpose(1, 2).contiguous()

    q, k, v = by_head(terms.q), by_head(terms.k), by_head(terms.v)
    decay: Tensor | None = None
    reads, keys_in, keys_out = q, k, k
    if terms.log_decay is None:
        qk, kk = (q @ k.mT).tril_(), k @ k.mT
    else:
        log_decay = by_head(terms.log_decay)
        qk, kk = _decayed_products(q, k, log_decay)
        so_far = log_decay.cumsum(2)
        reads, keys_in = q * so_far.exp(), k * so_far.exp()
        keys_out = k * _after(log_decay).exp()
        decay = so_far[:, :, -1:].exp()
    if terms.beta is not None:
        beta = by_head(terms.beta).unsqueeze(-1)
        # (I + strict lower of beta k k^T)^-1 beta [K exp(G), V] = [W, pseudo values]
        solved = torch.linalg.solve_triangular(
            kk * beta, torch.cat((keys_in, v), -1) * beta, upper=False, unitriangular=True
        )
        pseudo_keys, v = solved[..., : k.shape[-1]], solved[..., k.shape[-1] :].contiguous()
        reads = torch.cat((reads, pseudo_keys), 2)
    return _Blocks(reads=reads, values=v, attention=qk, keys=keys_out, decay=decay)


def _after(log_decay: Tensor) -> Tensor:
    """Sum of the log decays after each token, over dimension -2; summed, never subtracted."""
    later = log_decay.flip(-2).cumsum(-2)[..., :-1, :].flip(-2)
    return torch.cat((later, torch.zeros_like(log_decay[..., :1, :])), -2)


def _decayed_products(q: Tensor, k: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """Lower triangles of q_i . k_j and k_i . k_j decayed from j to i, both [m, H, C, C].

    The diagonal of the second is not defined (the solve takes it as 1).
    """
    if log_decay.shape[-1] == 1:
        between = _between(log_decay.squeeze(-1)).exp()
        return q @ k.mT * between, k @ k.mT * between
    return _products_by_halves(q, k, log_decay)


def _between(log_decay: Tensor) -> Tensor:
    """[..., C] -> [..., C, C]: sum over tokens j < t <= i at (i, j); -inf above the diagonal."""
    size = log_decay.shape[-1]
    ones = torch.ones(size, size, dtype=torch.bool, device=log_decay.device)
    terms = log_decay.unsqueeze(-1).expand(*log_decay.shape, size)
    sums = terms.masked_fill(~ones.tril(-1), 0).cumsum(-2)
    return sums.masked_fill_(ones.triu(1), float("-inf"))


def _products_by_halves(q: Tensor, k: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """The same for a gate per channel: halves of blocks of 2, 4, ... C tokens meet in the middle.

    Rows of the later half carry the decay since the middle, columns of the earlier half the decay
    until it; both factors are at most 1 and their product is the decay from j to i.
    """
    outer, size = q.shape[:2], q.shape[2]
    qk, kk = (q.new_zeros(*q.shape[:3], size) for _ in range(2))
    qk.diagonal(dim1=-2, dim2=-1).copy_((q * k).sum(-1))
    half = 1
    while half < size:
        pairs = (size // (2 * half), 2, half)
        q_, k_, g_ = (x.view(*outer, *pairs, -1) for x in (q, k, log_decay))
        since = g_[:, :, :, 1].cumsum(-2).exp()
        columns = (k_[:, :, :, 0] * _after(g_[:, :, :, 0]).exp()).mT
        for rows, products in ((q_, qk), (k_, kk)):
            corners = products.view(*outer, *pairs, *pairs)[:, :, :, 1, :, :, 0]
            corner = corners.diagonal(dim1=2, dim2=4)  # [m, H, half, half, P]
            corner.copy_(((rows[:, :, :, 1] * since) @ columns).movedim(2, -1))
        half *= 2
    return qk, kk
