"""What prefills of one form have in common: the cut, the workspace, grids and compiled kernels."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from benchx_kernels._checks import GateForm, check_blocks, check_prefill, check_states, require
from benchx_kernels._configs import (
    LOCAL_REGISTERS,
    PREFIX_BLOCK_V,
    PREFIX_WARPS,
    WIDEST_SEGMENTED,
    PrefillConfig,
    prefill_config,
)
from benchx_kernels._forms import PLANS, Form, form_of
from benchx_kernels._launch import Launcher
from benchx_kernels.batch import Batch
from benchx_kernels.device import chunk_intra, chunk_scan, gates

# Half of a chunk's decay, in nats, that a normal fp32 or bf16 number can hold: 115 of 126 bits.
_HALF_RANGE_NATS = 80.0
_MOST_Z = 65535  # a grid's third dimension

Grid = tuple[int, int, int]


class BatchForm(NamedTuple):
    """What a prefill's cut depends on of its batch."""

    cu_seqlens: Form
    tokens: int
    longest: int
    sequences: int

    @classmethod
    def of(cls, batch: Batch) -> BatchForm:
        """The form of a batch."""
        return cls(form_of(batch.cu_seqlens), batch.tokens, batch.longest, len(batch.lengths))


class Segments(NamedTuple):
    """The two passes that find the state before each segment.

    Attributes:
        own: Shape of the segments' own states, fp32.
        transition: Shape of their transitions, two bf16 each.
        starts: Shape of the states before them.
        scan: Finds the former.
        prefix: Turns them into the latter.
    """

    own: tuple[int, ...]
    transition: tuple[int, ...]
    starts: tuple[int, ...]
    scan: Launcher
    scan_grid: Grid
    prefix: Launcher
    prefix_grid: Grid


class Plan(NamedTuple):
    """One form's prefill.

    Attributes:
        tiles: Shape of the workspace; see `chunk_intra.tiles`.
        kind: Its dtype.
        decay: Shape of the chunks' decays, fp32.
        cut: slots, heads, segments and chunks per segment, as the kernels take them.
        intra: K1.
        scan: K2.
        segments: The passes before K2, or None.
    """

    tiles: tuple[int, ...]
    kind: torch.dtype
    decay: tuple[int, ...]
    cut: tuple[int, int, int, int]
    intra: Launcher
    intra_grid: Grid
    scan: Launcher
    scan_grid: Grid
    segments: Segments | None


@lru_cache(PLANS)
def plan(
    q: Form,
    k: Form,
    v: Form,
    beta: Form | None,
    gate: GateForm,
    batch: BatchForm,
    initial: Form | None,
    final: Form | None,
    *,
    v_first: bool,
    l2_norm: bool,
    config: PrefillConfig | None,
) -> Plan:
    """The plan of a form; raises ValueError for one that does not fit."""
    check_prefill(q, k, v, beta, gate, batch)
    check_states(initial, final, batch.sequences, q, v.shape[2], v_first)
    (_, heads, key_dim), value_dim, delta = q.shape, v.shape[2], beta is not None
    config = config or prefill_config(
        q.device, heads, batch.tokens, batch.longest, key_dim, value_dim
    )
    slots = batch.tokens // config.chunk + batch.sequences
    chunks = -(-max(batch.longest, 1) // config.chunk)
    length = config.segment_chunks or chunks
    cut = (slots, heads, -(-chunks // length), length)
    programs = batch.sequences * cut[2]
    require(
        cut[2] == 1 or key_dim <= WIDEST_SEGMENTED,
        f"segments with K of {key_dim}: a transition does not fit shared memory",
    )
    # A pass over segments takes the transition's K columns as well.
    check_blocks(config.block_v, value_dim, *((key_dim,) if cut[2] > 1 else ()))
    require(programs <= _MOST_Z, f"{batch.sequences} sequences in {cut[2]} segments: too many")
    walk = {
        "CHUNK": config.chunk, "K": key_dim, "V": value_dim, "BLOCK_V": config.block_v,
        "DELTA": delta, "STAGES": config.stages,
    }  # fmt: skip
    state = {"HAS_INITIAL": initial is not None, "V_FIRST": v_first}
    outputs = {"STORE_FINAL": final is not None, "SEGMENTED": cut[2] > 1}
    scan = Launcher(chunk_scan.state_scan, walk | state | outputs, {"num_warps": config.warps})
    return Plan(
        tiles=(heads, slots, config.chunk * ((2 + delta) * key_dim + config.chunk)),
        kind=torch.float16 if l2_norm else torch.bfloat16,
        decay=(heads, slots, key_dim),
        cut=cut,
        intra=_intra(gate, config, key_dim, delta=delta, l2_norm=l2_norm),
        intra_grid=(heads * slots, 1, 1),
        scan=scan,
        scan_grid=(value_dim // config.block_v, heads, programs),
        segments=_segments(cut, batch.sequences, config, walk, state) if cut[2] > 1 else None,
    )


def _intra(
    gate: GateForm, config: PrefillConfig, key_dim: int, *, delta: bool, l2_norm: bool
) -> Launcher:
    """K1; NVIDIA's compiler takes a limit on registers."""
    amd = torch.version.hip is not None
    steepest = -gate.lower_bound * config.chunk / 2
    narrow = gate.kind == "bounded" and steepest <= _HALF_RANGE_NATS
    constants = {
        "CHUNK": config.chunk, "K": key_dim, "GATE": gates.CODES[gate.kind], "DELTA": delta,
        "L2_NORM": l2_norm, "NARROW": narrow,
    }  # fmt: skip
    options = {"num_warps": config.intra_warps, "num_stages": 1}
    if config.intra_registers is not None and narrow and not amd:
        options["maxnreg"] = config.intra_registers
    return Launcher(chunk_intra.chunk_intra, constants, options)


def _segments(
    cut: tuple[int, int, int, int],
    sequences: int,
    config: PrefillConfig,
    walk: dict[str, int],
    state: dict[str, bool],
) -> Segments:
    _, heads, segments, _ = cut
    key_dim, value_dim = walk["K"], walk["V"]
    count, columns = sequences * heads * segments, value_dim + key_dim
    prefix = {"CHUNK": config.chunk, "K": key_dim, "V": value_dim, "BLOCK_V": PREFIX_BLOCK_V}
    prefix |= {"STAGES": config.prefix_stages}
    options = {"num_warps": config.warps}
    if torch.version.hip is None:
        options["maxnreg"] = LOCAL_REGISTERS
    return Segments(
        own=(count, value_dim, key_dim),
        transition=(count, 2, key_dim, key_dim),
        starts=(count, value_dim, key_dim),
        scan=Launcher(chunk_scan.segment_scan, walk, options),
        scan_grid=(columns // config.block_v, heads, sequences * (segments - 1)),
        prefix=Launcher(chunk_scan.segment_prefix, prefix | state, {"num_warps": PREFIX_WARPS}),
        prefix_grid=(value_dim // PREFIX_BLOCK_V, heads, sequences),
    )
