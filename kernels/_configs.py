"""How the kernels are cut on each architecture: fixed, chosen from measured sweeps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch

_CHUNK = 32
# K2's shared memory: two programs a processor with steps of 32 tokens, one with 64.
_SHARED_STEP_TOKENS = 64
_FEWEST_STEPS = 8
_MOST_SEGMENTS = 32
# In steps of K2 (1.7 us on an H200): a step without outputs, two more launches, a prefix's step.
_TRANSITION_STEP, _SEGMENT_LAUNCHES, _PREFIX_STEP = 0.6, 8.0, 1.5

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


def prefill_config(
    device: torch.device, heads: int, tokens: int, longest: int, key_dim: int, value_dim: int
) -> PrefillConfig:
    """Column blocks of 64, the matrix unit's height; segments where those leave processors idle.

    `tokens` counts all sequences, `longest` the longest of them.
    """
    cut = scan_cut(key_dim, value_dim, amd=torch.version.hip is not None)
    steps = -(-longest // cut.step)
    if steps < 2 * _FEWEST_STEPS:
        return cut
    # Short sequences among long ones fill less than a column of programs each.
    columns = heads * (value_dim // cut.block_v) * tokens / longest
    places = processors(device) * max(1, _SHARED_STEP_TOKENS // cut.step)
    segments = best_segments(steps, columns, places)
    return replace(cut, segment_chunks=-(-steps // segments) if segments > 1 else 0)


def best_segments(steps: int, columns: float, places: int) -> int:
    """Segments that the longest sequence is cut into for the shortest predicted time.

    Args:
        steps: Steps of K2 of the longest sequence.
        columns: Programs of K2 without segments, counted in longest sequences.
        places: Programs that run at the same time.
    """
    most = max(1, min(_MOST_SEGMENTS, steps // _FEWEST_STEPS))
    return min(range(1, most + 1), key=lambda n: predicted_steps(n, steps, columns, places))


def predicted_steps(segments: int, steps: int, columns: float, places: int) -> float:
    """Time of K2 with so many segments, in the time of one of its steps.

    Segments add a pass that finds each one's transition and own state, with as many columns again
    for the transition (of K = V), all but the last segment's, and a prefix over them.
    """
    length = math.ceil(steps / segments)
    passes = float(math.ceil(columns * segments / places))
    if segments == 1:
        return length * passes
    passes += _TRANSITION_STEP * math.ceil(2 * columns * (segments - 1) / places)
    return length * passes + _SEGMENT_LAUNCHES + _PREFIX_STEP * segments


def scan_cut(key_dim: int, value_dim: int, *, amd: bool) -> PrefillConfig:
    """Tiles, warps and pipeline, without segments; CDNA 3 has 64 KiB of shared memory."""
    return PrefillConfig(
        chunk=_CHUNK,
        intra_warps=max(4, key_dim // 32),  # a tile of 256 channels spills 2 KB in four
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
