"""KDA decode in Triton: one or several tokens for each sequence, the state updated in place."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from benchx_kernels._arguments import check_current, check_flag, check_kind, number
from benchx_kernels._checks import GateForm, check_blocks, check_decode
from benchx_kernels._configs import DecodeConfig, decode_config
from benchx_kernels._forms import PLANS, Form, form_of, form_or_none
from benchx_kernels._launch import Launcher
from benchx_kernels.device import decode, gates
from benchx_kernels.gate import Gate


def kda_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    *,
    gate: Gate,
    scale: float,
    slots: torch.Tensor | None = None,
    state_v_first: bool = True,
    qk_l2norm: bool = True,
    config: DecodeConfig | None = None,
) -> torch.Tensor:
    """Outputs [B, S, H, V] of S tokens for each of B sequences; `state` is updated in place.

    Launches one kernel, reads nothing back and allocates only the output: safe in a CUDA graph.

    Args:
        q: Queries [B, S, H, K], K of 64, 128 or 256.
        k: Keys [B, S, H, K].
        v: Values [B, S, H, V].
        beta: Logits of the delta rule's strength [B, S, H].
        state: [B, H, V, K] (`state_v_first`) or [B, H, K, V], fp32 or bf16; with `slots`, a pool
            [P, H, ...] of which each sequence owns one entry.
        gate: The decay, g [B, S, H, K]; `bounded`, `softplus` or `log`.
        scale: Factor on the queries.
        slots: Entry of the pool of each sequence, int32 or int64 [B], all different; None means
            that sequence b owns entry b.
        state_v_first: Layout of the state.
        qk_l2norm: Divide q and k by sqrt(sum(x^2) + 1e-6) over K first.
        config: How the work is cut; None picks what was measured best.

    Raises:
        ValueError: Before the launch, for shapes, dtypes, devices or strides that do not fit.
    """
    # Asked here: in a decode step a call of each check would take longer than its answer.
    if type(scale) is not float:
        scale = number("scale", scale)
    if type(state_v_first) is not bool or type(qk_l2norm) is not bool:
        check_flag("state_v_first", state_v_first)
        check_flag("qk_l2norm", qk_l2norm)
    if config is not None:
        check_kind("config", config, DecodeConfig)
    gate_form = GateForm.of(gate)
    step = _plan(
        form_of(q), form_of(k), form_of(v), form_of(beta), form_of(state), gate_form,
        form_or_none(slots), v_first=state_v_first, l2_norm=qk_l2norm, config=config,
    )  # fmt: skip
    check_current(q.device)
    o = torch.empty_like(v)
    if o.numel() == 0:
        return o
    batch, _, heads, value_dim = v.shape
    step.launch(
        (value_dim // step.block_v, heads, batch),
        q, k, v, gate.g, beta, gate.a_log, gate.dt_bias, state, slots, o,
        scale, gate_form.lower_bound, heads,
    )  # fmt: skip
    return o


class _Plan(NamedTuple):
    """What steps of one form have in common: rows of the state a program, and the kernel."""

    block_v: int
    launch: Launcher


@lru_cache(PLANS)
def _plan(
    q: Form,
    k: Form,
    v: Form,
    beta: Form,
    state: Form,
    gate: GateForm,
    slots: Form | None,
    *,
    v_first: bool,
    l2_norm: bool,
    config: DecodeConfig | None,
) -> _Plan:
    check_decode(q, k, v, beta, state, gate, slots, v_first=v_first)
    config = config or decode_config()
    check_blocks(config.block_v, v.shape[3])
    constants = {
        "TOKENS": q.shape[1], "K": q.shape[3], "V": v.shape[3], "BLOCK_V": config.block_v,
        "GATE": gates.CODES[gate.kind], "L2_NORM": l2_norm, "V_FIRST": v_first,
        "HAS_SLOTS": slots is not None,
    }  # fmt: skip
    launch = Launcher(decode.decode_step, constants, {"num_warps": config.warps})
    return _Plan(config.block_v, launch)
