"""Torch references of the linear-attention family: linear attention, delta rule, gated, KDA.

One implementation with options: a gate per channel (KDA), per head (gated delta rule), or none
(delta rule); without beta there is no delta rule ((gated) linear attention). `recurrent` is the
definition, `chunked` the WY form that equals it; both take packed batches and any float dtype.

    terms = activate(q, k, v, g, beta_logits, gate="bounded", ..., dtype=torch.float64)
    order = block_order(lengths, 64, q.device)
    result = chunked(terms, order, initial_state)
"""

from __future__ import annotations

from .reference_linear_chunked import chunked
from .reference_linear_order import BlockOrder, block_order
from .reference_linear_recurrent import advance, recurrent
from .reference_linear_terms import (
    Result,
    Terms,
    activate,
    l2_normalised,
    log_decay,
)

__all__ = [
    "BlockOrder",
    "Result",
    "Terms",
    "activate",
    "advance",
    "block_order",
    "chunked",
    "l2_normalised",
    "log_decay",
    "recurrent",
]
