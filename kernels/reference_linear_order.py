"""Order of work over a packed batch: block t of every sequence that is that long, then t + 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Step:
    """Blocks `start:stop` of the order; they belong to the sequences of rank `rank` onwards."""

    start: int
    stop: int
    rank: int

    @property
    def ranks(self) -> slice:
        """Which states, in order of rank, the step reads and writes."""
        return slice(self.rank, self.rank + self.stop - self.start)


@dataclass(frozen=True, kw_only=True)
class BlockOrder:
    """Tokens of a packed batch as blocks, such that one step advances all live sequences.

    Attributes:
        block: Tokens per block; the last block of a sequence is padded.
        tokens: T, tokens in the batch.
        sequences: int64 [N]: sequence of each rank, longest first.
        rows: int64 [M * block]: packed row of each slot; T where the slot is padding.
        source: `rows` with a row that exists (to be masked) for padding.
        padding: bool [M * block], or None when no slot is padding.
        counts: Sequences that are alive at each step; they sum to M.
        in_place: Whether slot s is row s, so that a gather is a view.
    """

    block: int
    tokens: int
    sequences: Tensor
    rows: Tensor
    source: Tensor
    padding: Tensor | None
    counts: tuple[int, ...]
    in_place: bool

    def steps(self, most: int) -> list[Step]:
        """Steps in order, none of more than `most` blocks."""
        found: list[Step] = []
        begin = 0
        for count in self.counts:
            for rank in range(0, count, most):
                stop = min(rank + most, count)
                found.append(Step(start=begin + rank, stop=begin + stop, rank=rank))
            begin += count
        return found

    def spans(self, most: int) -> list[tuple[Step, ...]]:
        """Consecutive steps, grouped into spans of at most `most` blocks."""
        groups: list[list[Step]] = []
        for step in self.steps(most):
            if groups and step.stop - groups[-1][0].start <= most:
                groups[-1].append(step)
            else:
                groups.append([step])
        return [tuple(group) for group in groups]

    def gather(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Packed [T, ...] -> blocks [stop - start, block, ...], zeros where padded; read only."""
        slots = slice(start * self.block, stop * self.block)
        taken = x[slots] if self.in_place else x.index_select(0, self.source[slots])
        if self.padding is not None:
            pad = self.padding[slots].view(-1, *[1] * (x.dim() - 1))
            taken = taken.masked_fill_(pad, 0)
        return taken.view(stop - start, self.block, *x.shape[1:])

    def scatter(self, out: Tensor, blocks: Tensor, start: int) -> None:
        """Inverse of `gather` into `out` [T + 1, ...], whose last row collects the padding."""
        values = blocks.flatten(0, 1)
        slots = slice(start * self.block, start * self.block + len(values))
        if self.in_place:
            out[slots] = values
        else:
            out.index_copy_(0, self.rows[slots], values)


def block_order(lengths: Sequence[int], block: int, device: torch.device) -> BlockOrder:
    """The order for sequences of these lengths; empty ones take part in no step."""
    blocks = torch.tensor([-(-length // block) for length in lengths], dtype=torch.int64)
    ranked = blocks.argsort(descending=True, stable=True)
    ended = blocks.bincount(minlength=1).cumsum(0)  # sequences of at most t blocks, at t
    counts = tuple((len(lengths) - ended[:-1]).tolist())
    tokens = sum(lengths)
    rows = _slot_rows(lengths, block, ranked, counts)
    padded = len(rows) > tokens
    return BlockOrder(
        block=block,
        tokens=tokens,
        sequences=ranked.to(device),
        rows=rows.to(device),
        source=rows.clamp(max=max(tokens - 1, 0)).to(device),
        padding=(rows == tokens).to(device) if padded else None,
        counts=counts,
        in_place=torch.equal(rows, torch.arange(tokens)),
    )


def _slot_rows(lengths: Sequence[int], block: int, ranked: Tensor, counts: Sequence[int]) -> Tensor:
    tokens = sum(lengths)
    first_block = torch.tensor([0, *accumulate(counts)], dtype=torch.int64)
    rank = ranked.argsort()
    sizes = torch.tensor(lengths, dtype=torch.int64)
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), sizes)
    row = torch.arange(tokens)
    position = row - (sizes.cumsum(0) - sizes)[sequence]
    slot = (first_block[position // block] + rank[sequence]) * block + position % block
    rows = torch.full((int(first_block[-1]) * block,), tokens, dtype=torch.int64)
    rows[slot] = row
    return rows
