"""A stack of decoder layers with random weights: KDA, MLA or grouped-query attention, MLPs.

stack = Stack(shape, seed=0, dtype=torch.bfloat16, device=device)
cache = stack.new_cache(sequences=1, capacity=8192)
logits = stack.prefill(tokens, cache, attention, chunk=2048)
logits = stack.forward(next_token, cache, attention, decode=True)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .model_attention import Attention
from .model_cache import KdaCache, RowCache, StackCache
from .model_mixers import GqaMixer, KdaMixer, MlaMixer, Step
from .model_mlp import DenseMlp, MoeMlp
from .model_residual import Reading, Stream, new_stream
from .model_shapes import Mixer, StackShape
from .model_weights import Draw, linear, rms_norm


class Layer:
    """Adds attention(norm(x)) to the stream, then mlp(norm(x)); x is what it reads of it."""

    def __init__(self, shape: StackShape, index: int, draw: Draw) -> None:
        self.index = index
        self.mixer = _mixer(shape, shape.mixers[index], draw)
        self.mlp: DenseMlp | MoeMlp
        if shape.is_moe[index]:
            assert shape.moe is not None
            self.mlp = MoeMlp(shape.moe, shape.hidden, draw, shape.situ)
        else:
            assert shape.dense_intermediate is not None
            self.mlp = DenseMlp(shape.dense_intermediate, shape.hidden, draw, shape.situ)
        self.before_mixer = draw.ones(shape.hidden)
        self.before_mlp = draw.ones(shape.hidden)
        self.of_mixer = Reading.drawn(shape, draw)
        self.of_mlp = Reading.drawn(shape, draw)

    def __call__(
        self, stream: Stream, cache: KdaCache | RowCache, step: Step, attention: Attention
    ) -> None:
        """Moves `stream` and `cache` on."""
        stream.enter(self.index)
        normed = rms_norm(stream.read(self.of_mixer), self.before_mixer)
        stream.add(self.mixer(normed, cache, step, attention, self.index))  # type: ignore[arg-type]
        normed = rms_norm(stream.read(self.of_mlp), self.before_mlp)
        stream.add(self.mlp(normed.flatten(0, 1)).view(normed.shape))


class Stack:
    """See the module. Weights are never trained: nothing here records gradients.

    Args:
        shape: Widths and layers.
        seed: Of the weights.
        dtype: Of the weights and of the stream.
        device: Where they live.
    """

    def __init__(
        self, shape: StackShape, *, seed: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        draw = Draw.seeded(seed, dtype, device)
        self.shape, self.dtype, self.device = shape, dtype, device
        self.embedding = draw.embedding(shape.vocab, shape.hidden)
        self.layers = [Layer(shape, index, draw) for index in range(len(shape.mixers))]
        self.of_output = Reading.drawn(shape, draw)
        self.norm = draw.ones(shape.hidden)
        self.head = None if shape.tied else draw.matrix(shape.vocab, shape.hidden)

    def new_cache(
        self,
        *,
        sequences: int,
        capacity: int,
        cache_dtype: torch.dtype | None = None,
        state_dtype: torch.dtype = torch.float32,
    ) -> StackCache:
        """An empty cache for `capacity` tokens of each sequence."""
        return StackCache.allocate(
            self.shape,
            sequences=sequences,
            capacity=capacity,
            dtype=self.dtype,
            cache_dtype=cache_dtype or self.dtype,
            state_dtype=state_dtype,
            device=self.device,
        )

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        cache: StackCache,
        attention: Attention,
        *,
        decode: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Logits [B, vocab] of the last of S new tokens; the cache moves on by S.

        Args:
            tokens: int64 [B, S].
            cache: Must have room for them.
            attention: Computes the recurrence and the softmax.
            decode: See `Step.decode`.
            dtype: Of the stream, where it is not that of the weights.

        Raises:
            ValueError: The cache is full.
        """
        step = Step(cache.tokens, cache.tokens + tokens.shape[1], decode)
        if step.end > cache.capacity:
            raise ValueError(f"{step.end} tokens do not fit a cache of {cache.capacity}")
        stream = new_stream(self.embedding[tokens].to(dtype or self.dtype), self.shape)
        for layer, held in zip(self.layers, cache.layers, strict=True):
            layer(stream, held, step, attention)
        cache.tokens = step.end
        last = rms_norm(stream.read(self.of_output, last=True)[:, -1], self.norm)
        return linear(last, self.embedding if self.head is None else self.head)

    def prefill(
        self, tokens: Tensor, cache: StackCache, attention: Attention, *, chunk: int
    ) -> Tensor:
        """Logits [B, vocab] after all of `tokens` [B, S], `chunk` of each sequence at a time."""
        logits = tokens.new_empty(0)
        for start in range(0, tokens.shape[1], chunk):
            part = tokens[:, start : start + chunk]
            logits = self.forward(part, cache, attention)
        return logits

    def weights(self) -> Iterator[Tensor]:
        """Every weight once."""
        seen: set[int] = set()
        for tensor in _tensors(self):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor


def _mixer(shape: StackShape, kind: Mixer, draw: Draw) -> KdaMixer | MlaMixer | GqaMixer:
    if kind == "kda":
        assert shape.kda is not None
        return KdaMixer(shape.kda, shape.hidden, draw)
    if kind == "mla":
        assert shape.mla is not None
        return MlaMixer(shape.mla, shape.hidden, draw)
    assert shape.gqa is not None
    return GqaMixer(shape.gqa, shape.hidden, draw)


def _tensors(owner: object) -> Iterator[Tensor]:
    for value in vars(owner).values():
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list):
            for item in value:
                yield from _tensors(item)
        elif isinstance(value, KdaMixer | MlaMixer | GqaMixer | DenseMlp | MoeMlp | Reading):
            yield from _tensors(value)
