"""The MLPs of a stack: dense, and a mixture of experts at full or latent width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .model_shapes import MoeShape, SituShape
from .model_weights import Draw, linear, rms_norm


def gated(gate: Tensor, up: Tensor, situ: SituShape | None) -> Tensor:
    """`silu(gate) x up`, or with both factors bounded (arXiv 2607.24653)."""
    if situ is None:
        return F.silu(gate) * up
    bounded = situ.beta * (gate / situ.beta).tanh() * gate.sigmoid()
    return bounded * (situ.linear_beta * (up / situ.linear_beta).tanh())


class DenseMlp:
    """down(gated(gate(x), up(x)))."""

    def __init__(
        self, intermediate: int, hidden: int, draw: Draw, situ: SituShape | None = None
    ) -> None:
        self.situ = situ
        self.gate_up = draw.matrix(2 * intermediate, hidden)
        self.down = draw.matrix(hidden, intermediate)

    def __call__(self, x: Tensor) -> Tensor:
        """[M, d] from [M, d]."""
        gate, up = linear(x, self.gate_up).chunk(2, dim=-1)
        return linear(gated(gate, up, self.situ), self.down)


class MoeMlp:
    """A router, the chosen experts' weights renormalised; shared experts.

    With a latent width the routed experts work between a projection down and one up
    (arXiv 2601.18089).
    """

    def __init__(
        self, shape: MoeShape, hidden: int, draw: Draw, situ: SituShape | None = None
    ) -> None:
        width, inner = shape.latent or hidden, shape.intermediate
        self.shape, self.situ = shape, situ
        self.router = draw.matrix(shape.experts, hidden)
        biased = shape.router == "sigmoid"
        self.bias = draw.uniform(-0.01, 0.01, shape.experts) if biased else None
        self.gate_up = draw.matrix(2 * inner, width, copies=shape.experts)
        self.down = draw.matrix(width, inner, copies=shape.experts)
        self.shared: DenseMlp | None = None
        if shape.shared:
            self.shared = DenseMlp(shape.shared * inner, hidden, draw, situ)
        self.narrow = None if shape.latent is None else draw.matrix(shape.latent, hidden)
        self.widen = None if shape.latent is None else draw.matrix(hidden, shape.latent)
        self.norm = draw.ones(width) if shape.latent_norm else None

    def __call__(self, x: Tensor) -> Tensor:
        """[M, d] from [M, d]."""
        weights, experts = self._route(x)
        inner = x if self.narrow is None else linear(x, self.narrow)
        y = self._routed(inner, weights, experts)
        if self.norm is not None:
            y = rms_norm(y, self.norm)
        if self.widen is not None:
            y = linear(y, self.widen)
        return y if self.shared is None else y + self.shared(x)

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [M, k] in x's dtype and experts int64 [M, k]; scores in fp32 or better."""
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        logits = linear(precise, self.router)
        scores = logits.softmax(-1) if self.bias is None else logits.sigmoid()
        ranked = self._of_best_groups(scores if self.bias is None else scores + self.bias)
        chosen = ranked.topk(self.shape.top_k, dim=-1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True) * self.shape.scale
        return weights.to(x.dtype), chosen

    def _of_best_groups(self, ranked: Tensor) -> Tensor:
        """Scores [M, E]; minus infinity outside the groups whose two best add up to most."""
        if self.shape.groups == 1:
            return ranked
        groups = ranked.view(ranked.shape[0], self.shape.groups, -1)
        kept = groups.topk(2, dim=-1).values.sum(-1).topk(self.shape.top_groups, dim=-1).indices
        outside = torch.ones(groups.shape[:-1], dtype=torch.bool, device=ranked.device)
        outside.scatter_(-1, kept, False)
        inside: Tensor = groups.masked_fill(outside[..., None], -torch.inf)
        return inside.flatten(-2)

    def _routed(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """Sum of the chosen experts [M, l]: rows sorted by expert, one grouped product each."""
        flat = experts.flatten()
        order = flat.argsort(stable=True)
        tokens = order // self.shape.top_k
        ones = torch.ones_like(flat, dtype=torch.int32)
        counts = ones.new_zeros(self.shape.experts).scatter_add_(0, flat, ones)
        ends = counts.cumsum(0, dtype=torch.int32)
        gate, up = grouped(x[tokens], self.gate_up, ends).chunk(2, dim=-1)
        rows = grouped(gated(gate, up, self.situ), self.down, ends)
        rows = rows * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add_(0, tokens, rows)


def grouped(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Rows of x [M, columns] times the matrix of their group: [M, rows].

    Where torch has no such product, group by group: that reads `ends` back and launches for each.

    Args:
        x: Rows sorted by group.
        weights: [E, rows, columns].
        ends: int32 [E]; group e is rows `ends[e - 1]` to `ends[e]`.
    """
    product = getattr(F, "grouped_mm", None)  # public since torch 2.10
    if product is None or x.dtype is torch.float64:
        return _grouped_by_hand(x, weights, ends)
    y: Tensor = product(x.contiguous(), weights.to(x.dtype).transpose(1, 2), offs=ends)
    return y


def _grouped_by_hand(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    y = x.new_empty(x.shape[0], weights.shape[1])
    begin = 0
    for group, end in enumerate(ends.tolist()):
        if end > begin:
            y[begin:end] = linear(x[begin:end], weights[group])
        begin = end
    return y
