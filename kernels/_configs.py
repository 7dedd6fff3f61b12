"""How the kernels are cut on each architecture: fixed, chosen from measured sweeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch

from benchx_kernels.batch import Batch

_CHUNK = 32
_PROGRAMS_PER_PROCESSOR = 2
_FEWEST_CHUNKS = 16

Scores = Literal["bf16", "tf32"]


@dataclass(frozen=True, kw_only=True)
class PrefillConfig:
    """How the chunked prefill is cut.

    Attributes:
        chunk: Tokens of a chunk, 32 or 64.
        join: Chunks that K1 joins into one step of K2, 1 or 2.
        scores: Rounding of the factors of A and M with a bounded gate.
        half: fp16 workspace where q and k are normalised (bf16 otherwise, and where this is
            false): twice to four times as accurate, for a power of two per column of V.
        intra_warps: Warps of a program of K1.
        intra_registers: Registers that a thread of K1 may use with a bounded gate, so that three
            programs share a processor; None, and any other gate, leave it to the compiler.
        block_v: Columns of the state that one program of K2 holds.
        warps: Warps of a program of K2.
        stages: Loads in flight: the depth of the software pipeline over chunks.
        prefix_warps: Warps of a program of the prefix over segments.
        segment_chunks: Steps of K2 per segment of the parallel scan; 0 walks each sequence in one
            go.
    """

    chunk: int
    join: int = 1
    scores: Scores = "tf32"
    half: bool = True
    intra_warps: int
    intra_registers: int | None = None
    block_v: int
    warps: int
    stages: int
    prefix_warps: int = 8
    segment_chunks: int = 0

    @property
    def step(self) -> int:
        """Tokens of a step of K2."""
        return self.chunk * self.join


def score_bits(config: PrefillConfig, *, amd: bool) -> int:
    """Bits that the factors of A and M keep; AMD has no tf32, and multiplies in fp32 instead."""
    if config.scores == "bf16":
        return 16
    return 32 if amd else 19


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors or compute units; 1 for the interpreter's CPU."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def prefill_config(device: torch.device, heads: int, batch: Batch, value_dim: int) -> PrefillConfig:
    """Column blocks of 64, the matrix unit's height; segments where those leave processors idle.

    Cutting into n segments walks a sequence twice (with twice the columns the first time), in
    1 / n of the steps each, and adds n steps of a prefix: worth it from three segments on.
    """
    cut = scan_cut(value_dim, amd=torch.version.hip is not None)
    programs = heads * len(batch.lengths) * (value_dim // cut.block_v)
    chunks = -(-batch.longest // _CHUNK)
    places = _PROGRAMS_PER_PROCESSOR * processors(device)
    segments = min(places // (2 * programs), chunks // _FEWEST_CHUNKS)
    return replace(cut, segment_chunks=-(-chunks // segments) if segments >= 3 else 0)


def scan_cut(value_dim: int, *, amd: bool) -> PrefillConfig:
    """Tiles, warps and pipeline, without segments; CDNA 3 has 64 KiB of shared memory."""
    return PrefillConfig(
        chunk=_CHUNK,
        intra_warps=4,
        intra_registers=168,
        block_v=min(value_dim, 64),
        warps=4,
        stages=2 if amd else 3,
        prefix_warps=4 if amd else 8,
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


def decode_config() -> DecodeConfig:
    """One warp for 8 rows, which was fastest from 1 to 256 sequences (see the lab log)."""
    return DecodeConfig(block_v=8, warps=1)
