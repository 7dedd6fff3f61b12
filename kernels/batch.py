"""A packed batch of sequences: validated once, then used by every layer's call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from numbers import Real

import torch

from benchx_kernels._arguments import check_kind


@dataclass(frozen=True, eq=False)
class Batch:
    """Where each sequence begins in a packed token dimension.

    Attributes:
        cu_seqlens: int64 [N + 1] on the device, contiguous, from 0 to the token count.
        lengths: The N lengths, on the host; any of them may be 0.
    """

    cu_seqlens: torch.Tensor
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        check_kind("cu_seqlens", self.cu_seqlens, torch.Tensor)
        check_kind("lengths", self.lengths, tuple)
        _whole_lengths(self.lengths)

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
        whole = _whole_lengths(lengths)
        bounds = torch.tensor([0, *whole], dtype=torch.int64).cumsum(0)
        return cls(bounds.to(device), whole)

    @classmethod
    def from_cu_seqlens(cls, cu_seqlens: torch.Tensor, tokens: int) -> Batch:
        """A batch from boundaries; reads them back once (a device sync), so do it once a batch.

        Raises:
            ValueError: Boundaries that are not integers [N + 1], do not start at 0, decrease, or
                do not end at `tokens`.
        """
        check_kind("cu_seqlens", cu_seqlens, torch.Tensor)
        integers = cu_seqlens.dtype in (torch.int32, torch.int64)
        if cu_seqlens.dim() != 1 or cu_seqlens.numel() < 1 or not integers:
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


def _whole_lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths as ints; ValueError where they are none, or not on the host."""
    if isinstance(lengths, str | torch.Tensor) or not isinstance(lengths, Iterable):
        raise ValueError(f"lengths are {lengths!r:.40}; expected a sequence of numbers")
    whole = tuple(lengths)
    if any(not isinstance(x, Real) or not math.isfinite(x) or x < 0 or x % 1 for x in whole):
        raise ValueError(f"sequence lengths are {whole}; expected whole, from 0")
    return tuple(int(length) for length in whole)
