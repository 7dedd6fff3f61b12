"""How the MLA kernels are cut on each architecture: fixed, chosen from measured sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import torch
import triton

from benchx_kernels._arguments import check_power, check_range, check_word
from benchx_kernels._configs import processors

DecodeKernel = Literal["portable", "hopper"]
PrefillKernel = Literal["portable", "hopper"]
_KERNELS = ("portable", "hopper")
MOST_SPLITS = 128
HEADS_TOGETHER = 16
_GLUON_SINCE = (3, 6)
_FEW_ROWS = 32
_LONG_PREFILL = 4096  # keys; below, the portable kernel's cheaper launch decides
# What a program costs beside its tiles (queries in, pipeline filled, result out), in tiles; what
# merging costs at all, and how many bytes of partial results cost as much as one tile.
_START_TILES = 4
_MERGE_TILES = 2
_MERGE_BYTES_PER_TILE = 6.4e6


@dataclass(frozen=True, kw_only=True)
class MlaDecodeConfig:
    """How a decode step is cut.

    Attributes:
        kernel: `portable` is plain Triton, `hopper` needs sm_90.
        block_m: Rows (query tokens x heads) of a program; 64 but in `portable`.
        block_n: Keys of a tile; 64 but in `portable`.
        warps: Warps of a program of `portable`.
        stages: Depth of the software pipeline of `portable`.
        resident: Programs that one processor holds at a time.
        splits: Pieces that each sequence is cut into, at most 128; 0 picks what fills the device.
    """

    kernel: DecodeKernel = "portable"
    block_m: int = 64
    block_n: int = 64
    warps: int = 8
    stages: int = 2
    resident: int = 1
    splits: int = 0

    def __post_init__(self) -> None:
        check_word(self, "kernel", _KERNELS)
        check_power(self, 16, 256, "block_m", "block_n")
        check_power(self, 1, 32, "warps")
        check_range(self, 1, 16, "stages")
        check_range(self, 1, 32, "resident")
        check_range(self, 0, MOST_SPLITS, "splits")


@dataclass(frozen=True, kw_only=True)
class MlaPrefillConfig:
    """How a prefill is cut.

    Attributes:
        kernel: `portable` is plain Triton, `hopper` needs sm_90.
        block_m: Queries of a program; 128 in `hopper`.
        block_n: Keys of a tile; 128 in `hopper`.
        warps: Warps of a program of `portable`.
        stages: Depth of the software pipeline of `portable`.
        heads_together: Heads whose blocks run side by side: with fewer, more blocks share a
            head's keys in L2; with more, the longest blocks come first everywhere. 0 picks.
    """

    kernel: PrefillKernel = "portable"
    block_m: int = 128
    block_n: int = 64
    warps: int = 8
    stages: int = 2
    heads_together: int = 0

    def __post_init__(self) -> None:
        check_word(self, "kernel", _KERNELS)
        check_power(self, 16, 256, "block_m", "block_n")
        check_power(self, 1, 32, "warps")
        check_range(self, 1, 16, "stages")
        check_range(self, 0, 2**31 - 1, "heads_together")


@dataclass(frozen=True)
class Splitting:
    """What the number of splits of a decode step depends on, beside the longest sequence.

    Attributes:
        tile: Keys of a tile.
        programs: Programs of one split of every sequence.
        places: Programs that the device holds at a time.
        partial_bytes: What one split of every sequence writes and reads of partial results.
    """

    tile: int
    programs: int
    places: int
    partial_bytes: int

    def splits(self, longest: int) -> int:
        """What finishes first when every wave fills the device; `longest` in keys.

        A wave takes the tiles of one split and what starting costs; splits add waves, and
        merging them writes and reads one partial result each.
        """
        return _cheapest_splits(max(1, -(longest // -self.tile)), self)


@cache
def no_hopper(device: torch.device) -> str | None:
    """Why the Hopper kernels don't run on a device, or None."""
    if device.type != "cuda" or torch.version.hip is not None:
        return f"{device} is no NVIDIA GPU"
    capability = torch.cuda.get_device_capability(device)
    if capability != (9, 0):
        return f"{device} has compute capability {capability[0]}.{capability[1]}, not 9.0"
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    return None if version >= _GLUON_SINCE else f"Triton {triton.__version__} is older than 3.6"


@cache
def has_e4m3(device: torch.device) -> bool:
    """Whether Triton converts fp8 e4m3 there: NVIDIA since 8.9, AMD, and its interpreter."""
    if device.type != "cuda" or torch.version.hip is not None:
        return True
    return torch.cuda.get_device_capability(device) >= (8, 9)


def portable_decode(rows: int, *, amd: bool) -> MlaDecodeConfig:
    """The cut of the portable decode kernel; CDNA 3 has 64 KiB of shared memory."""
    if amd:
        return MlaDecodeConfig(block_m=16 if rows <= 16 else 32, block_n=32, warps=4, stages=2)
    if rows <= 16:
        return MlaDecodeConfig(block_m=16, block_n=32, warps=4, stages=3, resident=2)
    if rows <= 32:
        return MlaDecodeConfig(block_m=32, block_n=32, warps=8, stages=3)
    return MlaDecodeConfig(block_m=64, block_n=32, warps=8, stages=2)


def decode_config(device: torch.device, rows: int, *, hopper: bool) -> MlaDecodeConfig:
    """The configuration for a step of `rows` (query tokens x heads) a sequence."""
    # Few rows are bound by the cache's bytes, where the portable kernel was the faster one.
    if hopper and rows > _FEW_ROWS:
        return MlaDecodeConfig(kernel="hopper")
    return portable_decode(rows, amd=torch.version.hip is not None)


def splitting(
    device: torch.device, config: MlaDecodeConfig, batch: int, rows: int, latent: int
) -> Splitting:
    """How the steps of one shape choose their number of splits; `latent` is C."""
    return Splitting(
        tile=config.block_n,
        programs=batch * -(rows // -config.block_m),
        places=processors(device) * config.resident,
        partial_bytes=8 * batch * rows * latent,  # fp32, written and read
    )


# Asked for in every call; the number of tiles changes once in 32 or 64 steps of a decode.
@lru_cache(maxsize=4096)
def _cheapest_splits(tiles: int, step: Splitting) -> int:
    def cost(splits: int) -> float:
        waves = -(step.programs * splits // -step.places)
        merging = _MERGE_TILES + splits * step.partial_bytes / _MERGE_BYTES_PER_TILE
        return waves * (_START_TILES - tiles // -splits) + merging * (splits > 1)

    return min(range(1, min(MOST_SPLITS, tiles) + 1), key=cost)


def prefill_config(longest: int, *, hopper: bool) -> MlaPrefillConfig:
    """The configuration for a prefill over up to `longest` keys a sequence."""
    if not hopper:
        return MlaPrefillConfig()
    if longest >= _LONG_PREFILL:
        return MlaPrefillConfig(kernel="hopper", block_m=128, block_n=128)
    return MlaPrefillConfig(stages=3)


def heads_together(config: MlaPrefillConfig, heads: int) -> int:
    """How many heads run side by side: as named, else groups of equal size up to 16."""
    if config.heads_together:
        return min(config.heads_together, heads)
    return -(heads // (heads // -HEADS_TOGETHER))
