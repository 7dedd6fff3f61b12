"""Flash Linear Attention's kernels for what KDA descends from; dispatch is off as in `fla` KDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchx.ops.backends_fla import FlaPrefill, load_function
from benchx.ops.base import register_backend
from benchx.ops.linear_inputs import LinearInputs


class FlaGatedDeltaRule(FlaPrefill):
    """`chunk_gated_delta_rule` with sigmoid of beta and L2 norm inside."""

    operator, module = "gated_delta_rule", "fla.ops.gated_delta_rule"
    function = "chunk_gated_delta_rule"

    def _options(self, inputs: LinearInputs) -> dict[str, Any]:
        assert inputs.g is not None
        assert inputs.beta_logits is not None
        return {
            "g": inputs.g.unsqueeze(0),
            "beta": inputs.beta_logits.unsqueeze(0),
            "use_qk_l2norm_in_kernel": inputs.qk_l2norm,
            "use_beta_sigmoid_in_kernel": True,
        }


class FlaDeltaRule(FlaPrefill):
    """`chunk_delta_rule`; it takes beta itself, so each call computes the sigmoid, in fp32."""

    operator, module, function = "delta_rule", "fla.ops.delta_rule", "chunk_delta_rule"
    sixteen_bit_only = True
    state_v_first = False

    def _options(self, inputs: LinearInputs) -> dict[str, Any]:
        return {"use_qk_l2norm_in_kernel": inputs.qk_l2norm}

    def _fresh(self, inputs: LinearInputs) -> Callable[[], dict[str, Any]]:
        assert inputs.beta_logits is not None
        logits = inputs.beta_logits.unsqueeze(0)
        return lambda: {"beta": logits.float().sigmoid()}


class FlaLinearAttention(FlaPrefill):
    """`chunk_linear_attn` without its default division by the running sum of keys.

    With a gate it is FLA's `chunk_simple_gla`, which the former calls for its own work.
    """

    operator, module = "linear_attention", "fla.ops.linear_attn"
    function = "chunk_linear_attn"
    max_key_width = None
    state_v_first = False
    ragged_waits = True  # its chunk_fwd_h reads the number of chunks back in every call

    def _target(self, inputs: LinearInputs) -> tuple[str, str]:
        if inputs.g is None:
            return self.module, self.function
        return "fla.ops.simple_gla", "chunk_simple_gla"

    def _options(self, inputs: LinearInputs) -> dict[str, Any]:
        return {"normalize": False} if inputs.g is None else {"g": inputs.g.unsqueeze(0)}

    def _fresh(self, inputs: LinearInputs) -> Callable[[], dict[str, Any]]:
        """The L2 norm, which this function lacks, by FLA's own kernel."""
        if not inputs.qk_l2norm:
            return dict
        normalise = load_function("fla.modules.norm.l2norm", "l2norm")
        q, k = inputs.q.unsqueeze(0), inputs.k.unsqueeze(0)
        return lambda: {"q": normalise(q), "k": normalise(k)}


register_backend(FlaLinearAttention())
register_backend(FlaDeltaRule())
register_backend(FlaGatedDeltaRule())
