"""One model point's inputs: a stack with random weights, a prompt, and what is cached of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from benchx.architectures.descriptor import Architecture

if TYPE_CHECKING:
    import torch

    from benchx_kernels.model_cache import StackCache
    from benchx_kernels.model_shapes import StackShape
    from benchx_kernels.model_stack import Stack

PAGE = 64
"""Rows of a page: a cache that decode reads is a whole number of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelInputs:
    """What a backend gets.

    Attributes:
        arch: The variant that the stack is.
        stack: Weights; shared by all clones, since nobody writes to them.
        tokens: int64 [B, S], the new tokens.
        prefix: Tokens that the cache holds already, random in every sequence.
        chunk: Tokens of each sequence in one forward pass.
        decode: Whether this is a decode step.
        cache_dtype: Of the rows.
        state_dtype: Of the recurrent states.
        seed: Of what the cache holds.
    """

    arch: Architecture
    stack: Stack
    tokens: torch.Tensor
    prefix: int
    chunk: int
    decode: bool
    cache_dtype: torch.dtype
    state_dtype: torch.dtype
    seed: int

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.tokens.device

    def clone(self) -> Self:
        """Prompt copied, weights shared; caches are made by backends in `prepare`."""
        return replace(self, tokens=self.tokens.clone())

    def nbytes(self) -> int:
        """Bytes of weights and prompt."""
        weights = sum(int(weight.nbytes) for weight in self.stack.weights())
        return weights + self.tokens.nbytes

    def new_cache(self) -> StackCache:
        """A cache that holds the prefix; equal seeds give equal content."""
        import torch

        sequences, new = self.tokens.shape
        capacity = self.prefix + new
        if self.decode:
            capacity = -(-capacity // PAGE) * PAGE
        cache = self.stack.new_cache(
            sequences=sequences,
            capacity=capacity,
            cache_dtype=self.cache_dtype,
            state_dtype=self.state_dtype,
        )
        if self.prefix:
            cache.fill(self.prefix, torch.Generator(self.device).manual_seed(self.seed))
        return cache


def stack_shape(arch: Architecture) -> StackShape:
    """The widths of a descriptor, as the stack takes them."""
    from benchx_kernels import model_shapes as shapes

    kda, mla, gqa, moe = arch.kda, arch.mla, arch.gqa, arch.moe
    return shapes.StackShape(
        hidden=arch.hidden,
        vocab=arch.vocab,
        mixers=arch.kinds,
        is_moe=arch.is_moe,
        kda=None
        if kda is None
        else shapes.KdaShape(
            heads=kda.heads,
            head_dim=kda.head_dim,
            value_dim=kda.value_dim,
            conv=kda.conv,
            gate=kda.gate,
            lower_bound=kda.lower_bound,
            full_rank_gate=kda.output_gate == "full_rank",
        ),
        mla=None if mla is None else shapes.MlaShape(**mla.model_dump()),
        gqa=None if gqa is None else shapes.GqaShape(**gqa.model_dump()),
        moe=None if moe is None else shapes.MoeShape(**moe.model_dump()),
        situ=None if arch.situ is None else shapes.SituShape(**arch.situ.model_dump()),
        residual_block=arch.residual_block,
        dense_intermediate=arch.dense_intermediate,
        tied=arch.tied_embeddings,
    )
