"""Chunked prefill of the linear-attention family in Triton: KDA and, specialised, its ancestors.

One pair of kernels serves all of them: a vector gate is KDA, a scalar gate the gated delta rule,
no gate the delta rule; without the delta term they become gated and plain linear attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton

from benchx_kernels._checks import check_prefill, check_states
from benchx_kernels._configs import PrefillConfig, prefill_config, score_bits
from benchx_kernels.batch import Batch
from benchx_kernels.device import chunk_intra, chunk_scan, gates
from benchx_kernels.gate import Gate

# Half of a chunk's decay, in nats, that a normal fp32 or bf16 number can hold: 115 of 126 bits.
_HALF_RANGE_NATS = 80.0
_PREFIX_BLOCK_V = 16


@dataclass(frozen=True, kw_only=True)
class States:
    """Recurrent states of a batch, [N, H, V, K] (`v_first`) or [N, H, K, V], fp32 or bf16.

    Attributes:
        initial: State before the first token; None is zero.
        final: Receives the state after the last token; None discards it.
        v_first: Layout of both.
    """

    initial: torch.Tensor | None = None
    final: torch.Tensor | None = None
    v_first: bool = True


@dataclass(frozen=True, kw_only=True)
class _Workspace:
    """What K1 leaves for K2: [H, slots, step, *] tiles, fp32 decays [H, slots, join, K]."""

    kd: torch.Tensor
    qd: torch.Tensor
    z: torch.Tensor
    y: torch.Tensor
    decay: torch.Tensor
    delta: bool

    @classmethod
    def allocate(
        cls, q: torch.Tensor, batch: Batch, config: PrefillConfig, *, delta: bool, unit: bool
    ) -> _Workspace:
        """Uninitialised; `unit` says that q and k are normalised, hence every entry at most 1."""
        heads, key_dim, step = q.shape[1], q.shape[2], config.step
        slots = batch.tokens // step + len(batch.lengths)
        kind = torch.float16 if unit and config.half else torch.bfloat16

        def tiles(width: int) -> torch.Tensor:
            return torch.empty(heads, slots, step, width, dtype=kind, device=q.device)

        decays = (heads, slots, config.join, key_dim)
        return cls(
            kd=tiles(key_dim) if delta else q,  # never read without the delta term
            qd=tiles(key_dim),
            z=tiles(key_dim),
            y=tiles(step),
            decay=torch.empty(decays, dtype=torch.float32, device=q.device),
            delta=delta,
        )


def chunk_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor | None,
    *,
    gate: Gate,
    batch: Batch,
    scale: float,
    states: States | None = None,
    qk_l2norm: bool = True,
    config: PrefillConfig | None = None,
) -> torch.Tensor:
    """Outputs [T, H, V] of packed sequences, in v's dtype; `states.final` is filled.

    Args:
        q: Queries [T, H, K], K of 64, 128 or 256.
        k: Keys [T, H, K].
        v: Values [T, H, V].
        beta: Logits of the delta rule's strength [T, H]; None leaves the delta term out.
        gate: The decay.
        batch: Where the sequences begin; they may be empty.
        scale: Factor on the queries.
        states: Initial and final states; None starts from zero and keeps none.
        qk_l2norm: Divide q and k by sqrt(sum(x^2) + 1e-6) over K first.
        config: How the work is cut; None picks what was measured best.

    Raises:
        ValueError: Before any launch, for shapes, dtypes, devices or strides that do not fit.
    """
    states = states or States()
    check_prefill(q, k, v, beta, gate, batch)
    check_states(states.initial, states.final, batch, q, v.shape[2], states.v_first)
    o = torch.empty_like(v)
    if not batch.lengths or v.shape[1] == 0:
        return o
    config = config or prefill_config(q.device, v.shape[1], batch, v.shape[2])
    work = _Workspace.allocate(q, batch, config, delta=beta is not None, unit=qk_l2norm)
    _launch_intra(work, q, k, beta, gate, batch, scale, qk_l2norm, config)
    _launch_scan(work, v, states, batch, o, config)
    return o


def _launch_intra(
    work: _Workspace,
    q: torch.Tensor,
    k: torch.Tensor,
    beta: torch.Tensor | None,
    gate: Gate,
    batch: Batch,
    scale: float,
    qk_l2norm: bool,
    config: PrefillConfig,
) -> None:
    heads, key_dim = q.shape[1], q.shape[2]
    slots = work.qd.shape[1]
    amd = torch.version.hip is not None
    steepest = -gate.lower_bound * config.chunk / 2
    narrow = gate.kind == "bounded" and steepest <= _HALF_RANGE_NATS
    chunk_intra.chunk_intra[(heads, slots)](
        q, k, gate.g, beta, gate.a_log, gate.dt_bias, batch.cu_seqlens,
        work.kd, work.qd, work.z, work.y, work.decay,
        scale, gate.lower_bound, len(batch.lengths), slots, heads,
        CHUNK=config.chunk, JOIN=config.join, K=key_dim, GATE=gates.CODES[gate.kind],
        DELTA=work.delta, L2_NORM=qk_l2norm, NARROW=narrow, SCORES=score_bits(config, amd=amd),
        num_warps=config.intra_warps, num_stages=1,
        **(_register_limit(config) if narrow else {}),
    )  # fmt: skip


def _register_limit(config: PrefillConfig) -> dict[str, int]:
    """The launch option that caps registers; Triton has it for NVIDIA only."""
    if config.intra_registers is None or torch.version.hip is not None:
        return {}
    return {"maxnreg": config.intra_registers}


def _launch_scan(
    work: _Workspace,
    v: torch.Tensor,
    states: States,
    batch: Batch,
    o: torch.Tensor,
    config: PrefillConfig,
) -> None:
    heads, slots, _, key_dim = work.qd.shape
    value_dim, sequences = o.shape[2], len(batch.lengths)
    chunks = triton.cdiv(max(batch.longest, 1), config.step)
    length = config.segment_chunks or chunks
    segments = triton.cdiv(chunks, length)
    cut = (slots, heads, segments, length)
    constants: dict[str, Any] = {"CHUNK": config.step, "K": key_dim, "V": value_dim}
    walk = {"HALVES": config.join, "DELTA": work.delta, "STAGES": config.stages}
    starts = None
    if segments > 1:
        starts = _segment_starts(work, v, states, batch, cut, config, constants, walk)
    chunk_scan.state_scan[(value_dim // config.block_v, heads, sequences * segments)](
        work.kd, work.qd, work.z, work.y, work.decay, v, batch.cu_seqlens,
        states.initial, states.final, starts, o, *cut,
        BLOCK_V=config.block_v, HAS_INITIAL=states.initial is not None,
        STORE_FINAL=states.final is not None, V_FIRST=states.v_first, SEGMENTED=segments > 1,
        num_warps=config.warps, **constants, **walk,
    )  # fmt: skip


def _segment_starts(
    work: _Workspace,
    v: torch.Tensor,
    states: States,
    batch: Batch,
    cut: tuple[int, int, int, int],
    config: PrefillConfig,
    constants: dict[str, Any],
    walk: dict[str, Any],
) -> torch.Tensor:
    """The state before each segment, fp32 [N * H * segments, V, K]."""
    _, heads, segments, _ = cut
    sequences, key_dim, value_dim = len(batch.lengths), constants["K"], constants["V"]
    count, columns = sequences * heads * segments, value_dim + key_dim
    local = v.new_empty(count, columns, key_dim, dtype=torch.float32)
    starts = v.new_empty(count, value_dim, key_dim, dtype=torch.float32)
    chunk_scan.segment_scan[(columns // config.block_v, heads, sequences * (segments - 1))](
        work.kd, work.z, work.decay, v, batch.cu_seqlens, local, *cut,
        BLOCK_V=config.block_v, num_warps=config.warps, **constants, **walk,
    )  # fmt: skip
    chunk_scan.segment_prefix[(value_dim // _PREFIX_BLOCK_V, heads, sequences)](
        local, states.initial, starts, batch.cu_seqlens, *cut[1:],
        BLOCK_V=_PREFIX_BLOCK_V, HAS_INITIAL=states.initial is not None,
        V_FIRST=states.v_first, num_warps=config.prefix_warps, **constants,
    )  # fmt: skip
    return starts
