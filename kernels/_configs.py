"""How the kernels are cut on each architecture: fixed, chosen from measured sweeps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import torch

from benchx_kernels._arguments import check_power, check_range

_CHUNK = 32
_FEWEST_STEPS = 8
_MOST_SEGMENTS = 32
# K2 on an H200, K = V = 128, chunks of 32 tokens, in microseconds: a chunk's step of a program
# alone on its processor and of each of two or three that share it, with outputs (two fit) and
# without (three fit); a pass besides its steps; a segment's turn in the prefix.
_STEP_US = (0.87, 1.42)
_LOCAL_STEP_US = (0.61, 0.87, 1.12)
_PASS_US, _PREFIX_US = 6.0, 1.24
PREFIX_BLOCK_V, PREFIX_WARPS = 16, 4
LOCAL_REGISTERS = 168  # of a thread of the pass without outputs, so that three programs fit
WIDEST_SEGMENTED = 128  # K; the prefix holds two bf16 [K, K] in shared memory


@dataclass(frozen=True, kw_only=True)
class PrefillConfig:
    """How the chunked prefill is cut.

    Attributes:
        chunk: Tokens of a chunk: what K1 takes at once and K2 in one step.
        intra_warps: Warps of a program of K1.
        intra_registers: Registers that a thread of K1 may use with a bounded gate, so that three
            programs share a processor; None, and any other gate, leave it to the compiler.
        block_v: Columns of the state that one program of K2 holds.
        warps: Warps of a program of K2.
        stages: Loads in flight: the depth of the software pipeline over chunks.
        prefix_stages: Loads in flight in the prefix over segments.
        segment_chunks: Chunks of a segment of the parallel scan; 0 walks each sequence in one go.
    """

    chunk: int
    intra_warps: int
    intra_registers: int | None = None
    block_v: int
    warps: int
    stages: int
    prefix_stages: int
    segment_chunks: int = 0

    def __post_init__(self) -> None:
        check_power(self, 16, 128, "chunk")
        check_power(self, 16, 256, "block_v")
        check_power(self, 1, 32, "intra_warps", "warps")
        check_range(self, 1, 16, "stages", "prefix_stages")
        check_range(self, 0, 2**31 - 1, "segment_chunks")
        if self.intra_registers is not None:
            check_range(self, 16, 255, "intra_registers")


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
    steps = -(-longest // cut.chunk)
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
    # The first loads of a program of the prefix cost it about two turns.
    turns = (segments + 1) * math.ceil(columns / PREFIX_BLOCK_V / processors)
    return local + _PASS_US + _PREFIX_US * turns + final


def _step_us(programs: float, processors: int, sharing: tuple[float, ...]) -> float:
    """Time of one step of all programs, which run in waves of as many as fit.

    `sharing` is the time of one step by how many programs share a processor, up to what fits.
    """
    waves, rest = divmod(programs, len(sharing) * processors)
    last = sharing[math.ceil(rest / processors) - 1] if rest else 0.0
    return waves * sharing[-1] + last


def scan_cut(key_dim: int, value_dim: int, *, amd: bool) -> PrefillConfig:
    """Tiles, warps and pipeline, without segments; CDNA 3 has 64 KiB of shared memory."""
    return PrefillConfig(
        chunk=_CHUNK,
        intra_warps=max(4, key_dim // 32),  # a tile of 256 channels spills 2 KB in four
        intra_registers=168,
        block_v=min(value_dim, 64),
        warps=4,
        stages=2 if amd else 3,
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

    def __post_init__(self) -> None:
        check_power(self, 1, 256, "block_v")
        check_power(self, 1, 32, "warps")


def decode_config() -> DecodeConfig:
    """One warp for 8 rows, which was fastest from 1 to 256 sequences (see the lab log)."""
    return DecodeConfig(block_v=8, warps=1)
