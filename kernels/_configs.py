"""How the kernels are cut on each architecture: fixed, chosen from measured sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from benchx_kernels.batch import Batch


@dataclass(frozen=True, kw_only=True)
class PrefillConfig:
    """How the chunked prefill is cut.

    Attributes:
        chunk: Tokens of a chunk, 32 or 64.
        intra_warps: Warps of a program of K1.
        block_v: Columns of the state that one program of K2 holds.
        warps: Warps of a program of K2.
        stages: Loads in flight: the depth of the software pipeline over chunks.
        segment_chunks: Chunks per segment of the parallel scan; 0 walks each sequence in one go.
    """

    chunk: int
    intra_warps: int
    intra_registers: int | None = None
    precision: int = 2
    block_v: int
    warps: int
    stages: int
    segment_chunks: int = 0


@cache
def _processors(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


def prefill_config(
    device: torch.device, heads: int, batch: Batch, key_dim: int, value_dim: int
) -> PrefillConfig:
    """The fewest column blocks that still occupy the device; segments once those are too few."""
    processors = _processors(device.index or 0) if device.type == "cuda" else 1
    pairs = heads * len(batch.lengths)
    block_v = min(value_dim, 128)
    while block_v > 16 and pairs * (value_dim // block_v) * 2 <= processors:
        block_v //= 2
    return PrefillConfig(
        chunk=32,
        intra_warps=4,
        block_v=block_v,
        warps=8 if block_v >= 128 else 4,
        stages=2,
    )


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How the decode step is cut.

    Attributes:
        block_v: Rows of the state that one program holds.
        warps: Warps of a program.
    """

    block_v: int
    warps: int


def decode_config(device: torch.device, pairs: int, value_dim: int) -> DecodeConfig:
    """Small blocks while there are few (sequence, head) pairs, so that every processor has work."""
    processors = _processors(device.index or 0) if device.type == "cuda" else 1
    block_v = 32
    while block_v > 8 and pairs * (value_dim // block_v) < 4 * processors:
        block_v //= 2
    return DecodeConfig(block_v=block_v, warps=4 if block_v > 8 else 1)
