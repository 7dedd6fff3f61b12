"""Chunked prefill of the linear-attention family in Triton: KDA and, specialised, its ancestors.

One pair of kernels serves all of them: a vector gate is KDA, a scalar gate the gated delta rule,
no gate the delta rule; without the delta term they become gated and plain linear attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchx_kernels._arguments import check_current, check_flag, check_kind, number
from benchx_kernels._checks import GateForm
from benchx_kernels._configs import PrefillConfig
from benchx_kernels._forms import form_of, form_or_none
from benchx_kernels._prefill_plan import BatchForm, Plan, plan
from benchx_kernels.batch import Batch
from benchx_kernels.gate import Gate


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

    def __post_init__(self) -> None:
        check_flag("v_first", self.v_first)


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
    scale = number("scale", scale)
    check_kind("batch", batch, Batch)
    check_flag("qk_l2norm", qk_l2norm)
    states = States() if states is None else states
    check_kind("states", states, States)
    if config is not None:
        check_kind("config", config, PrefillConfig)
    gate_form = GateForm.of(gate)
    found = plan(
        form_of(q), form_of(k), form_of(v), form_or_none(beta), gate_form,
        BatchForm.of(batch), form_or_none(states.initial), form_or_none(states.final),
        v_first=states.v_first, l2_norm=qk_l2norm, config=config,
    )  # fmt: skip
    check_current(q.device)
    o = torch.empty_like(v)
    if not batch.lengths or v.shape[1] == 0:
        return o
    work = torch.empty(found.tiles, dtype=found.kind, device=q.device)
    decay = torch.empty(found.decay, dtype=torch.float32, device=q.device)
    slots, heads, _, _ = found.cut
    found.intra(
        found.intra_grid, q, k, gate.g, beta, gate.a_log, gate.dt_bias, batch.cu_seqlens,
        work, decay, scale, gate_form.lower_bound, len(batch.lengths), slots, heads,
    )  # fmt: skip
    starts = _segment_starts(found, work, decay, v, states, batch)
    found.scan(
        found.scan_grid, work, decay, v, batch.cu_seqlens, states.initial, states.final, starts,
        o, *found.cut,
    )  # fmt: skip
    return o


def _segment_starts(
    found: Plan,
    work: torch.Tensor,
    decay: torch.Tensor,
    v: torch.Tensor,
    states: States,
    batch: Batch,
) -> torch.Tensor | None:
    """The state before each segment, fp32 [N * H * segments, V, K]; None without segments."""
    passes = found.segments
    if passes is None:
        return None
    own = torch.empty(passes.own, dtype=torch.float32, device=v.device)
    transition = torch.empty(passes.transition, dtype=torch.bfloat16, device=v.device)
    starts = torch.empty(passes.starts, dtype=torch.float32, device=v.device)
    passes.scan(passes.scan_grid, work, decay, v, batch.cu_seqlens, own, transition, *found.cut)
    passes.prefix(
        passes.prefix_grid, own, transition, states.initial, starts, batch.cu_seqlens,
        *found.cut[1:],
    )  # fmt: skip
    return starts
