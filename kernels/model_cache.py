"""What a prefill leaves behind: latent rows, keys and values, recurrent states and windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from .model_shapes import StackShape


@dataclass(kw_only=True)
class KdaCache:
    """Of one KDA layer.

    Attributes:
        state: [B, H, V, K].
        window: [B, taps - 1, H (2K + V)]: the last inputs of the convolution.
    """

    state: Tensor
    window: Tensor


@dataclass(kw_only=True)
class RowCache:
    """Of one MLA layer: [B, capacity, C + R]; of one GQA layer: [B, capacity, 2, G, D]."""

    rows: Tensor


@dataclass(kw_only=True)
class StackCache:
    """Of all layers.

    Attributes:
        layers: One entry per layer.
        tokens: Tokens that every sequence holds.
        capacity: Tokens that there is room for.
    """

    layers: list[KdaCache | RowCache]
    tokens: int
    capacity: int

    @classmethod
    def allocate(
        cls,
        shape: StackShape,
        *,
        sequences: int,
        capacity: int,
        dtype: torch.dtype,
        cache_dtype: torch.dtype,
        state_dtype: torch.dtype,
        device: torch.device,
    ) -> Self:
        """An empty cache: states and windows are zero."""

        def kda() -> KdaCache:
            assert shape.kda is not None
            k = shape.kda
            state = (sequences, k.heads, k.value_dim, k.head_dim)
            window = (sequences, k.conv - 1, sum(k.channels))
            return KdaCache(
                state=torch.zeros(state, dtype=state_dtype, device=device),
                window=torch.zeros(window, dtype=dtype, device=device),
            )

        def rows() -> RowCache:
            width: tuple[int, ...]
            if shape.mla is not None:
                width = (shape.mla.row_dim,)
            else:
                assert shape.gqa is not None
                width = (2, shape.gqa.kv_heads, shape.gqa.head_dim)
            made = torch.empty((sequences, capacity, *width), dtype=cache_dtype, device=device)
            return RowCache(rows=made)

        layers = [kda() if mixer == "kda" else rows() for mixer in shape.mixers]
        return cls(layers=layers, tokens=0, capacity=capacity)

    def cache_bytes(self) -> int:
        """Bytes of the rows that hold a token."""
        held = (layer for layer in self.layers if isinstance(layer, RowCache))
        return sum(layer.rows[:, : self.tokens].nbytes for layer in held)

    def state_bytes(self) -> int:
        """Bytes of states and windows."""
        held = (layer for layer in self.layers if isinstance(layer, KdaCache))
        return sum(layer.state.nbytes + layer.window.nbytes for layer in held)

    def content(self) -> dict[str, Tensor]:
        """What is held, as views by name: states, windows, and the rows that hold a token."""
        held: dict[str, Tensor] = {}
        for index, layer in enumerate(self.layers):
            if isinstance(layer, KdaCache):
                held[f"state of layer {index}"] = layer.state
                held[f"window of layer {index}"] = layer.window
            else:
                held[f"rows of layer {index}"] = layer.rows[:, : self.tokens]
        return held

    def fill(self, tokens: int, generator: torch.Generator) -> None:
        """Hold `tokens` random tokens, as if they had been computed (to measure what follows)."""
        for layer in self.layers:
            if isinstance(layer, KdaCache):
                layer.state.normal_(generator=generator)
                layer.window.normal_(generator=generator)
            else:
                _fill_normal(layer.rows[:, :tokens], generator)
        self.tokens = tokens

    def clear(self) -> None:
        """Hold nothing."""
        for layer in self.layers:
            if isinstance(layer, KdaCache):
                layer.state.zero_()
                layer.window.zero_()
        self.tokens = 0


def _fill_normal(rows: Tensor, generator: torch.Generator) -> None:
    """Some dtypes (fp8) have no generator of their own."""
    if rows.dtype.itemsize > 1:
        rows.normal_(generator=generator)
        return
    for sequence in rows:
        drawn = torch.empty(sequence.shape, dtype=torch.bfloat16, device=rows.device)
        sequence.copy_(drawn.normal_(generator=generator))
