"""The stream of a stack: what a layer reads of the ones before, and how it adds to it.

Plainly the sum of everything; with attention residuals (arXiv 2603.15031; arXiv 2607.24653,
equations 8 to 10) a mix of block sums, weighted by a query of each reading layer.
"""

from __future__ import annotations

from typing import Protocol, Self

import torch
from torch import Tensor

from .model_shapes import StackShape
from .model_weights import Draw, rms_norm


class Reading:
    """Query [d] and norm [d] of one reading; without attention residuals there is nothing to it."""

    def __init__(self, query: Tensor | None, norm: Tensor | None) -> None:
        self.query, self.norm = query, norm

    @classmethod
    def drawn(cls, shape: StackShape, draw: Draw) -> Self:
        """Random weights, or none for a plain stream."""
        if shape.residual_block is None:
            return cls(None, None)
        return cls(draw.matrix(1, shape.hidden)[0], draw.ones(shape.hidden))


class Stream(Protocol):
    """What the layers of one forward pass share."""

    def enter(self, layer: int) -> None:
        """A layer begins, counted from 0."""

    def read(self, reading: Reading, *, last: bool = False) -> Tensor:
        """[B, S, d], or [B, 1, d] of the last token alone."""

    def add(self, y: Tensor) -> None:
        """The output [B, S, d] of attention or of an MLP."""


def new_stream(x: Tensor, shape: StackShape) -> Stream:
    """The stream that begins with the embedded tokens x [B, S, d]."""
    return SumStream(x) if shape.residual_block is None else BlockStream(x, shape.residual_block)


class SumStream:
    """Everything is added up."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def enter(self, layer: int) -> None:
        """See `Stream`: nothing to do."""

    def read(self, reading: Reading, *, last: bool = False) -> Tensor:
        """See `Stream`."""
        return self._x[:, -1:] if last else self._x

    def add(self, y: Tensor) -> None:
        """See `Stream`."""
        self._x = self._x + y


class BlockStream:
    """Sums of blocks of layers; the embedding is a block of its own.

    Args:
        x: Embedded tokens [B, S, d].
        layers: Of a block.
    """

    def __init__(self, x: Tensor, layers: int) -> None:
        self._layers = layers
        self._blocks: list[Tensor] = []
        self._sum: Tensor | None = x

    def enter(self, layer: int) -> None:
        """See `Stream`: at the first layer of a block the one before is done."""
        if layer % self._layers == 0 and self._sum is not None:
            self._blocks.append(self._sum)
            self._sum = None

    def read(self, reading: Reading, *, last: bool = False) -> Tensor:
        """See `Stream`: blocks and the unfinished sum, weighted by exp(query . norm(block))."""
        sources = self._blocks if self._sum is None else [*self._blocks, self._sum]
        if last:
            sources = [source[:, -1:] for source in sources]
        if len(sources) == 1:
            return sources[0]
        shares = torch.stack([_logit(source, reading) for source in sources]).softmax(0)
        mixed = shares[0, ..., None] * sources[0]
        for share, source in zip(shares[1:], sources[1:], strict=True):
            mixed = torch.addcmul(mixed, share[..., None], source.to(mixed.dtype))
        return mixed.to(sources[0].dtype)

    def add(self, y: Tensor) -> None:
        """See `Stream`."""
        self._sum = y if self._sum is None else self._sum + y


def _logit(source: Tensor, reading: Reading) -> Tensor:
    """[B, S] in fp32 or better."""
    assert reading.query is not None
    assert reading.norm is not None
    precise = torch.promote_types(source.dtype, torch.float32)
    return rms_norm(source, reading.norm).to(precise) @ reading.query.to(precise)
