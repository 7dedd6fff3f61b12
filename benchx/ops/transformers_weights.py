"""A stack's weights under the names that transformers' modules give them, without a copy.

All are views of the stack's tensors but W_UK and W_UV of MLA, which transformers keeps as one
matrix. Letters in shapes as in `benchx_kernels.model_shapes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchx_kernels.model_mixers import GqaMixer, KdaMixer, MlaMixer
from benchx_kernels.model_mlp import DenseMlp, MoeMlp

if TYPE_CHECKING:
    from torch import Tensor

    from benchx_kernels.model_stack import Stack

Weights = dict[str, "Tensor"]


def named_weights(stack: Stack) -> Weights:
    """Every weight of a causal language model of transformers, from a stack's."""
    found = {
        "model.embed_tokens.weight": stack.embedding,
        "model.norm.weight": stack.norm,
        "lm_head.weight": stack.embedding if stack.head is None else stack.head,
    }
    for index, layer in enumerate(stack.layers):
        at = f"model.layers.{index}."
        found[f"{at}input_layernorm.weight"] = layer.before_mixer
        found[f"{at}post_attention_layernorm.weight"] = layer.before_mlp
        found |= _under(f"{at}self_attn.", _mixer(layer.mixer))
        found |= _under(f"{at}mlp.", _mlp(layer.mlp))
    return found


def _under(prefix: str, weights: Weights) -> Weights:
    return {prefix + name: weight for name, weight in weights.items()}


def _mixer(mixer: KdaMixer | MlaMixer | GqaMixer) -> Weights:
    if isinstance(mixer, KdaMixer):
        return _kda(mixer)
    return _mla(mixer) if isinstance(mixer, MlaMixer) else _gqa(mixer)


def _kda(mixer: KdaMixer) -> Weights:
    assert mixer.gate_down is not None
    q, k, v = mixer.qkv.split_with_sizes(list(mixer.shape.channels))
    return {
        "q_proj.weight": q,
        "k_proj.weight": k,
        "v_proj.weight": v,
        "conv1d.weight": mixer.taps[:, None],
        "forget_gate.f_a_proj.weight": mixer.decay_down,
        "forget_gate.f_b_proj.weight": mixer.decay_up,
        "forget_gate.dt_bias": mixer.dt_bias.flatten(),
        "forget_gate.A_log": mixer.a_log.view(1, 1, -1, 1),
        "b_proj.weight": mixer.beta,
        "g_a_proj.weight": mixer.gate_down,
        "g_b_proj.weight": mixer.gate_up,
        "o_norm.weight": mixer.norm,
        "o_proj.weight": mixer.out,
    }


def _mla(mixer: MlaMixer) -> Weights:
    import torch

    query = {"q_proj.weight": mixer.q_up}
    if mixer.q_down is not None and mixer.q_norm is not None:
        query = {
            "q_a_proj.weight": mixer.q_down,
            "q_a_layernorm.weight": mixer.q_norm,
            "q_b_proj.weight": mixer.q_up,
        }
    return query | {
        "kv_a_proj_with_mqa.weight": mixer.kv_down,
        "kv_a_layernorm.weight": mixer.kv_norm,
        "kv_b_proj.weight": torch.cat([mixer.w_uk, mixer.w_uv], dim=1).flatten(0, 1),
        "o_proj.weight": mixer.out,
    }


def _gqa(mixer: GqaMixer) -> Weights:
    k, v = mixer.kv.chunk(2)
    found = {
        "q_proj.weight": mixer.q,
        "k_proj.weight": k,
        "v_proj.weight": v,
        "o_proj.weight": mixer.out,
    }
    if mixer.q_norm is not None and mixer.k_norm is not None:
        found |= {"q_norm.weight": mixer.q_norm, "k_norm.weight": mixer.k_norm}
    return found


def _mlp(mlp: DenseMlp | MoeMlp) -> Weights:
    if isinstance(mlp, DenseMlp):
        gate, up = mlp.gate_up.chunk(2)
        return {"gate_proj.weight": gate, "up_proj.weight": up, "down_proj.weight": mlp.down}
    found = {
        "gate.weight": mlp.router,
        "experts.gate_up_proj": mlp.gate_up,
        "experts.down_proj": mlp.down,
    }
    if mlp.bias is not None:
        found["gate.e_score_correction_bias"] = mlp.bias
    return found if mlp.shared is None else found | _under("shared_experts.", _mlp(mlp.shared))
