"""A packed batch of sequences: validated once, then used by every layer's call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch


@dataclass(frozen=True, eq=False)
class Batch:
    """Where each sequence begins in a packed token dimension.

    Attributes:
        cu_seqlens: int64 [N + 1] on the device, contiguous, from 0 to the token count.
        lengths: The N lengths, on the host; any of them may be 0.
    """

    cu_seqlens: torch.Tensor
    lengths: tuple[int, ...]

    @cached_property
    def tokens(self) -> int:
        """Tokens of all sequences together."""
        return sum(self.lengths)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence; 0 for an empty batch."""
        return max(self.lengths, default=0)

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], device: torch.device | str) -> Batch:
        """A batch from the lengths; raises ValueError for one that is negative or not whole."""
        if any(length < 0 or length != int(length) for length in lengths):
            raise ValueError(f"sequence lengths are {tuple(lengths)}; expected whole, from 0")
        bounds = torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0)
        return cls(bounds.to(device), tuple(int(length) for length in lengths))

    @classmethod
    def from_cu_seqlens(cls, cu_seqlens: torch.Tensor, tokens: int) -> Batch:
        """A batch from boundaries; reads them back once (a device sync), so do it once a batch.

        Raises:
            ValueError: Boundaries that are not integers [N + 1], do not start at 0, decrease, or
                do not end at `tokens`.
        """
        if cu_seqlens.dim() != 1 or cu_seqlens.numel() < 1 or cu_seqlens.is_floating_point():
            shape = f"{cu_seqlens.dtype} {tuple(cu_seqlens.shape)}"
            raise ValueError(f"cu_seqlens is {shape}; expected integers [N + 1]")
        bounds = cu_seqlens.tolist()
        if bounds[0] != 0:
            raise ValueError(f"cu_seqlens starts at {bounds[0]}; expected 0")
        if bounds[-1] != tokens:
            raise ValueError(f"cu_seqlens ends at {bounds[-1]}; the inputs hold {tokens} tokens")
        lengths = tuple(b - a for a, b in pairwise(bounds))
        if any(length < 0 for length in lengths):
            raise ValueError(f"cu_seqlens decreases: {bounds}")
        # Contiguous: kernels read it as such, and a slice of something longer is not.
        return cls(cu_seqlens.to(torch.int64).contiguous(), lengths)
