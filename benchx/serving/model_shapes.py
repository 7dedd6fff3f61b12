"""The shape of a real model without its weights: a config.json for engines that make them up.

Speed with random weights is valid where it depends on shapes alone. Text is not, nor is what
depends on values: which experts are chosen, how many drafted tokens are accepted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchx.architectures import Architecture, load_architecture
from benchx.core.errors import RunFailed
from benchx.serving.tiny_model import cache_folder

SHAPES = ("kimi-linear-48b-a3b",)
"""Architectures that a scenario may give as `engine.model`, with `load_format: dummy`."""


def write_shape(name: str, *, into: Path | None = None) -> Path:
    """The folder with the config.json of a shape; raises RunFailed when it can't be written."""
    folder = (cache_folder() if into is None else into) / f"{name}-shape"
    text = json.dumps(kimi_linear_config(load_architecture(name)), indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(text)
    except OSError as error:
        raise RunFailed(f"can't write {folder}: {error.strerror}") from error
    return folder


def kimi_linear_config(arch: Architecture) -> Mapping[str, Any]:
    """An architecture of KDA and MLA layers in the form of Kimi Linear's own config.json.

    Raises:
        ValueError: It has no KDA, MLA or experts.
    """
    if arch.kda is None or arch.mla is None or arch.moe is None or arch.full_attention is None:
        raise ValueError(f"{arch.name} is not of Kimi Linear's kind")
    full = sorted(arch.full_attention)
    return {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "vocab_size": arch.vocab,
        "hidden_size": arch.hidden,
        "head_dim": arch.hidden // arch.mla.heads,
        "intermediate_size": arch.dense_intermediate,
        "num_hidden_layers": arch.layers,
        "num_attention_heads": arch.mla.heads,
        "num_key_value_heads": arch.mla.heads,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "moe_intermediate_size": arch.moe.intermediate,
        "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid",
        "num_experts": arch.moe.experts,
        "num_experts_per_token": arch.moe.top_k,
        "num_shared_experts": arch.moe.shared,
        "routed_scaling_factor": 2.446,
        "first_k_dense_replace": arch.dense_layers,
        "moe_layer_freq": 1,
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "q_lora_rank": arch.mla.q_lora,
        "kv_lora_rank": arch.mla.kv_lora,
        "qk_nope_head_dim": arch.mla.nope_dim,
        "qk_rope_head_dim": arch.mla.rope_dim,
        "v_head_dim": arch.mla.value_dim,
        "mla_use_nope": not arch.mla.rope,
        "num_nextn_predict_layers": 0,
        "rope_theta": 10000.0,
        "model_max_length": arch.max_context,
        "max_position_embeddings": arch.max_context,
        "torch_dtype": "bfloat16",
        "bos_token_id": arch.vocab - 256,
        "eos_token_id": arch.vocab - 255,
        "pad_token_id": arch.vocab - 1,
        "tie_word_embeddings": False,
        "linear_attn_config": {
            "kda_layers": [n for n in range(1, arch.layers + 1) if n not in full],
            "full_attn_layers": full,
            "head_dim": arch.kda.head_dim,
            "num_heads": arch.kda.heads,
            "short_conv_kernel_size": arch.kda.conv,
        },
    }
