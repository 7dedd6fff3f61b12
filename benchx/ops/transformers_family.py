"""Which class of transformers is an architecture, and its config; None of it imports the package.

Every number that changes what is computed is named here, so that no default of a config slips in.
"""

from __future__ import annotations

from typing import Any

from benchx.architectures.descriptor import Architecture
from benchx.ops.packages import Package

PACKAGE = Package(
    module="transformers",
    distribution="transformers",
    tested="5.24.0",
    minimum="5.24",
    needs_gpu=False,
    hashed_files="transformers/models/*/modeling_*.py",
)


def class_problem(arch: Architecture) -> str | None:
    """Why no class of transformers computes this architecture, or None."""
    lacking = (
        (arch.residual_block is not None, "attention residuals"),
        (arch.situ is not None, "SiTU"),
        (arch.moe is not None and arch.moe.latent is not None, "experts at a latent width"),
        (arch.mla is not None and arch.mla.output_gate, "MLA with an output gate"),
        (arch.kda is not None and arch.kda.gate != "softplus", "KDA with a bounded gate"),
        (arch.kda is not None and arch.kda.output_gate != "low_rank", "KDA's full-rank gate"),
        (_unequal_kda_heads(arch), "KDA heads with unequal keys and values"),
        (arch.kda is not None and arch.mla is not None and arch.mla.rope, "KDA beside rotated MLA"),
        (not _known_moe(arch), "this router with this attention"),
        (arch.count("kda") == arch.layers, "a cache that no attention layer counts tokens in"),
    )
    named = [text for lacks, text in lacking if lacks]
    return f"transformers has no class with {', '.join(named)}" if named else None


def model_type(arch: Architecture) -> str:
    """Transformers' word for the class, by what the layers compute."""
    if arch.gqa is None:
        return "deepseek_v3" if arch.mla is not None and arch.mla.rope else "kimi_linear"
    if arch.moe is not None:
        return "qwen3_moe"
    return "qwen3" if arch.gqa.qk_norm else "llama"


def config_values(arch: Architecture, *, eps: float, rope_base: float) -> dict[str, Any]:
    """Keyword arguments of the config of `model_type`.

    Args:
        arch: One that `class_problem` has nothing against.
        eps: Of the norms.
        rope_base: Of the rotary positions.
    """
    values: dict[str, Any] = {
        "vocab_size": arch.vocab,
        "hidden_size": arch.hidden,
        "num_hidden_layers": arch.layers,
        "intermediate_size": arch.dense_intermediate or arch.hidden,
        "max_position_embeddings": arch.max_context,
        "tie_word_embeddings": arch.tied_embeddings,
        "rms_norm_eps": eps,
        "hidden_act": "silu",
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if model_type(arch) != "kimi_linear":
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": rope_base}
    return values | _attention(arch) | _moe(arch)


def _attention(arch: Architecture) -> dict[str, Any]:
    if arch.gqa is not None:
        return {
            "num_attention_heads": arch.gqa.heads,
            "num_key_value_heads": arch.gqa.kv_heads,
            "head_dim": arch.gqa.head_dim,
            "attention_bias": False,
        }
    assert arch.mla is not None
    values: dict[str, Any] = {
        "num_attention_heads": arch.mla.heads,
        "num_key_value_heads": arch.mla.heads,
        "q_lora_rank": arch.mla.q_lora,
        "kv_lora_rank": arch.mla.kv_lora,
        "qk_nope_head_dim": arch.mla.nope_dim,
        "qk_rope_head_dim": arch.mla.rope_dim,
        "v_head_dim": arch.mla.value_dim,
    }
    if model_type(arch) == "deepseek_v3":
        # The stack rotates halves; the published weights are stored for interleaved pairs.
        return values | {"rope_interleave": False, "num_mtp_layers": 0}
    kinds = {"kda": "linear_attention", "mla": "full_attention"}
    values["layer_types"] = [kinds[kind] for kind in arch.kinds]
    if arch.kda is not None:
        values |= {
            "linear_num_heads": arch.kda.heads,
            "linear_head_dim": arch.kda.head_dim,
            "linear_conv_kernel_dim": arch.kda.conv,
        }
    return values


def _moe(arch: Architecture) -> dict[str, Any]:
    sparse = arch.is_moe
    by_type: dict[str, dict[str, Any]] = {
        "kimi_linear": {"mlp_layer_types": ["sparse" if moe else "dense" for moe in sparse]},
        "deepseek_v3": {"first_k_dense_replace": sparse.count(False)},
        "qwen3_moe": {"mlp_only_layers": [i for i, moe in enumerate(sparse) if not moe]},
    }
    named = by_type.get(model_type(arch), {})
    if arch.moe is None:
        return named
    return named | {
        "num_local_experts": arch.moe.experts,
        "num_experts_per_tok": arch.moe.top_k,
        "n_shared_experts": arch.moe.shared,
        "moe_intermediate_size": arch.moe.intermediate,
        "norm_topk_prob": True,
        "routed_scaling_factor": arch.moe.scale,
        "n_group": arch.moe.groups,
        "topk_group": arch.moe.top_groups,
    }


def _unequal_kda_heads(arch: Architecture) -> bool:
    return arch.kda is not None and arch.kda.head_dim != arch.kda.value_dim


def _known_moe(arch: Architecture) -> bool:
    moe = arch.moe
    if moe is None:
        return True
    if arch.gqa is not None:
        plain = (moe.router, moe.shared, moe.scale, moe.groups) == ("softmax", 0, 1.0, 1)
        return plain and arch.gqa.qk_norm
    return moe.router == "sigmoid" and moe.shared > 0
