"""How the kernels are cut on each architecture: fixed, chosen from measured sweeps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch

_CHUNK = 32
_FEWEST_STEPS = 8
_MOST_SEGMENTS = 32
# K2 on an H200, K = V = 128, steps of 32 tokens, in microseconds: a step of a program alone on
# its processor and of each of two that share it, with outputs and without; a pass besides its
# steps; a segment's turn in the prefix.
_RESIDENT = 2
_STEP_US = {1: 0.9, _RESIDENT: 1.5}
_LOCAL_STEP_US = {1: 0.6, _RESIDENT: 0.86}
_PASS_US, _PREFIX_US = 5.0, 4.0
PREFIX_BLOCK_V = 16
WIDEST_SEGMENTED = 128  # K; the prefix holds two bf16 [K, K] in shared memory

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
        prefix_stages: Loads in flight there.
        prefix_block_v: Columns of the state that one program of it holds.
        segment_chunks: Steps of K2 per segment of the parallel scan; 0 walks each sequence in one
            go.
    """

    chunk: int
    join: int = 1
    scores: Scores = "bf16"
    half: bool = True
    intra_warps: int
    intra_registers: int | None = None
    block_v: int
    warps: int
    stages: int
    prefix_warps: int = 8
    prefix_stages: int = 3
    prefix_block_v: int = PREFIX_BLOCK_V
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
    if steps < 2 * _FEWEST_STEPS or key_dim > WIDEST_SEGMENTED:
        return cut
    # Short sequences among long ones fill less than a column of programs each.
    columns = heads * value_dim * tokens / longest
    segments = best_segments(steps, columns, processors(device), cut.block_v)
    return replace(cut, segment_chunks=-(-steps // segments) if segments > 1 else 0)


def best_segments(steps: int, columns: float, processors: int, block_v: int) -> int:
    """Segments that the longest sequence is cut into for the shortest predicted time.

    Args:
        steps: Steps of K2 of the longest sequence.
        columns: Columns of all states, counted in longest sequences.
        processors: Multiprocessors or compute units.
        block_v: Columns of a program of K2.
    """
    most = max(1, min(_MOST_SEGMENTS, steps // _FEWEST_STEPS))
    return min(
        range(1, most + 1), key=lambda n: predicted_us(n, steps, columns, processors, block_v)
    )


def predicted_us(segments: int, steps: int, columns: float, processors: int, block_v: int) -> float:
    """Time of K2 with so many segments, in microseconds of an H200.

    Segments add a pass that finds each one's transition and own state, with as many columns again
    for the transition (of K = V), all but the last segment's, and a prefix over them.
    """
    length = math.ceil(steps / segments)
    programs = columns / block_v
    final = _PASS_US + length * _step_us(programs * segments, processors, _STEP_US)
    if segments == 1:
        return final
    local = _PASS_US + length * _step_us(2 * programs * (segments - 1), processors, _LOCAL_STEP_US)
    waves = math.ceil(columns / PREFIX_BLOCK_V / processors)
    return local + _PASS_US + _PREFIX_US * (segments - 1) * waves + final


def _step_us(programs: float, processors: int, one: dict[int, float]) -> float:
    """Time of one step of all programs, which run in waves of as many as are resident."""
    waves, rest = divmod(programs, _RESIDENT * processors)
    last = 0.0 if rest == 0 else one[1 if rest <= processors else _RESIDENT]
    return waves * one[_RESIDENT] + last


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
        prefix_stages=1 if amd else 3,
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
