"""A Hugging Face `config.json` as a descriptor; what is not understood is refused by name.

Guessing would be worse than refusing: experts sized by `hidden_size` double Kimi K3's checkpoint.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchx.architectures.config_file import Config, language_model
from benchx.architectures.config_published import checkpoint, longest_context, omitted
from benchx.architectures.descriptor import Architecture
from benchx.core.errors import Location, suggestion
from benchx.scenario.located import Located
from benchx.scenario.validation import validated

ARCHITECTURES = {
    "kimi_linear": "hybrid",
    "deepseek_v3": "mla",
    "deepseek_v2": "mla",
    "kimi_k2": "mla",
    "llama": "gqa",
    "mistral": "gqa",
    "qwen2": "gqa",
    "qwen3": "gqa",
    "qwen3_moe": "gqa",
}
"""`model_type` -> attention; for a nested config that of its `text_config`."""

QK_NORM = ("qwen3", "qwen3_moe")
"""Whose q and k are normalised a head: the config does not say so."""


UNMODELLED_ATTENTION = (
    "index_topk",
    "compress_ratios",
    "cross_attention_layers",
    "use_sliding_window",
)
ALWAYS_SLIDING = ("mistral",)
"""Whose attention is windowed wherever `sliding_window` is a number."""

LAYER_TYPES = ("linear_attention", "full_attention")

EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
CHOSEN = ("num_experts_per_token", "num_experts_per_tok")
ROUTER_KEYS = ("scoring_func", "moe_router_activation_func")
SOFTMAX_ROUTERS = ("deepseek_v2", "qwen3_moe")
"""Whose router's scores are a softmax where the config does not name their form."""


def from_config(text: str, path: Path) -> Architecture:
    """The descriptor of a config's language model.

    Args:
        text: Content of the file.
        path: Where it was read, for messages and the name.

    Raises:
        ConfigError: Not JSON, an architecture that is not known, a size that is missing or
            contradicts another.
        ScenarioError: Sizes that can't hold together.
    """
    config = language_model(text, path)
    if not isinstance(config.data.get("model_type"), str):
        raise config.wrong(
            f"{config.prefix}model_type is missing; known: {', '.join(ARCHITECTURES)}"
        )
    model_type = str(config.data["model_type"])
    if model_type not in ARCHITECTURES:
        tail = suggestion(model_type, ARCHITECTURES)
        raise config.wrong(f"{config.prefix}model_type {model_type!r} is not known; {tail}")
    _refuse_unknown(config)
    built = _frame(config, path) | _attention(config, ARCHITECTURES[model_type]) | _mlp(config)
    known = {key: value for key, value in built.items() if value is not None}
    return validated(Architecture, Located.from_plain(known, Location(path)))


def _refuse_unknown(config: Config) -> None:
    """What would change cache or weights, and is not modelled."""
    for name in UNMODELLED_ATTENTION:
        if config.data.get(name):
            raise config.wrong(f"{config.prefix}{name} is set; such attention is not modelled")
    window = config.data.get("sliding_window")
    # Others have a switch beside it: a window that is off may still have a width.
    if window is not None and config.data["model_type"] in ALWAYS_SLIDING:
        raise config.wrong(f"{config.prefix}sliding_window is {window!r}; it is not modelled")
    kinds = config.data.get("layer_types") or []
    other = next((kind for kind in kinds if kind not in LAYER_TYPES), None)
    if other is not None:
        raise config.wrong(f"{config.prefix}layer_types names {other!r}, which is not modelled")
    for name, usual in (("moe_layer_freq", 1), ("decoder_sparse_step", 1), ("mlp_only_layers", [])):
        value = config.data.get(name)
        if value is not None and value != usual:
            raise config.wrong(f"{config.prefix}{name} is {value!r}; only {usual} is modelled")


def _frame(config: Config, path: Path) -> dict[str, Any]:
    name = re.sub(r"[^a-z0-9._-]+", "-", (path.resolve().parent.name or "model").lower())
    return {
        "schema": 1,
        "name": name.strip("._-") or "model",
        "title": path.resolve().parent.name or "config.json",
        "sources": (str(path),),
        "hidden": config.size("hidden_size"),
        "vocab": config.size("vocab_size"),
        "layers": config.size("num_hidden_layers"),
        "max_context": longest_context(config),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "checkpoint": checkpoint(config),
        "omitted": omitted(config),
        "residual_block": config.optional_size("attn_res_block_size"),
        "situ": _situ(config),
    }


def _situ(config: Config) -> dict[str, float] | None:
    if config.word(("silu", "situ"), "silu", "hidden_act") == "silu":
        return None
    names = {"beta": "activation_situ_beta", "linear_beta": "activation_situ_linear_beta"}
    for name in names.values():
        if config.data.get(name) is None:
            raise config.wrong(f"{config.prefix}{name} is missing; hidden_act 'situ' needs it")
    return {key: config.number(name, 1.0) for key, name in names.items()}


def _usual_router(config: Config) -> str:
    return "softmax" if config.data.get("model_type") in SOFTMAX_ROUTERS else "sigmoid"


def _attention(config: Config, kind: str) -> dict[str, Any]:
    if kind == "gqa":
        return {"gqa": _gqa(config)}
    found: dict[str, Any] = {"mla": _mla(config)}
    if kind == "hybrid" and _has_native_form(config):
        found |= _hybrid_by_layer_types(config)
    elif kind == "hybrid":
        linear = config.part("linear_attn_config")
        found |= {"full_attention": linear.layers("full_attn_layers"), "kda": _kda(linear)}
        _check_pattern(linear, config.size("num_hidden_layers"))
    return found


def _has_native_form(config: Config) -> bool:
    return config.data.get("linear_attn_config") is None and "layer_types" in config.data


def _hybrid_by_layer_types(config: Config) -> dict[str, Any]:
    """The form in which transformers (5.x) itself writes Kimi Linear's config."""
    kinds = config.words("layer_types", LAYER_TYPES)
    width = config.size("linear_head_dim")
    return {
        "full_attention": tuple(
            layer for layer, kind in enumerate(kinds, start=1) if kind == "full_attention"
        ),
        "kda": {
            "heads": config.size("linear_num_heads"),
            "head_dim": width,
            "value_dim": width,
            "conv": config.size("linear_conv_kernel_dim"),
        },
    }


def _check_pattern(linear: Config, layers: int) -> None:
    kda, full = linear.layers("kda_layers"), linear.layers("full_attn_layers")
    if sorted((*kda, *full)) != list(range(1, layers + 1)):
        raise linear.wrong(
            f"{linear.prefix}kda_layers ({len(kda)}) and full_attn_layers ({len(full)}) "
            f"do not name each of the {layers} layers once"
        )


def _kda(linear: Config) -> dict[str, Any]:
    bound = linear.negative("gate_lower_bound")
    return {
        "heads": linear.size("num_heads"),
        "head_dim": linear.size("head_dim"),
        "value_dim": linear.size("head_dim"),
        "conv": linear.size("short_conv_kernel_size"),
        "gate": "softplus" if bound is None else "bounded",
        "lower_bound": -5.0 if bound is None else bound,
        "output_gate": "full_rank" if linear.flag("use_full_rank_gate") else "low_rank",
    }


def _mla(config: Config) -> dict[str, Any]:
    found: dict[str, Any] = {
        "heads": config.size("num_attention_heads"),
        "kv_lora": config.size("kv_lora_rank"),
        "nope_dim": config.size("qk_nope_head_dim"),
        "rope_dim": config.size("qk_rope_head_dim"),
        "value_dim": config.size("v_head_dim"),
        "output_gate": config.flag("mla_use_output_gate"),
        "rope": not config.flag("mla_use_nope"),
    }
    rank = config.optional_size("q_lora_rank")
    return found if rank is None else found | {"q_lora": rank}


def _gqa(config: Config) -> dict[str, Any]:
    heads, hidden = config.size("num_attention_heads"), config.size("hidden_size")
    kv_heads = config.optional_size("num_key_value_heads")
    width = config.optional_size("head_dim")
    if width is None and (not heads or hidden % heads):
        raise config.wrong(
            f"{config.prefix}head_dim is missing, and num_attention_heads {heads} does not divide "
            f"hidden_size {hidden}"
        )
    return {
        "heads": heads,
        "kv_heads": heads if kv_heads is None else kv_heads,
        "head_dim": width if width is not None else hidden // heads,
        "qk_norm": config.data.get("model_type") in QK_NORM,
    }


def _mlp(config: Config) -> dict[str, Any]:
    experts = config.optional_size(*EXPERTS)
    layers, dense = config.size("num_hidden_layers"), config.optional_size("intermediate_size")
    if experts is None and config.optional_size(*CHOSEN):  # else all layers would count as dense
        experts = config.size(*EXPERTS)
    if not experts:
        return {"dense_layers": layers, "dense_intermediate": config.size("intermediate_size")}
    moe: dict[str, Any] = {
        "experts": experts,
        "top_k": config.size(*CHOSEN),
        "shared": config.optional_size("num_shared_experts", "n_shared_experts") or 0,
        "intermediate": config.size("moe_intermediate_size"),
        "latent_norm": config.flag("latent_moe_use_norm"),
        "router": config.word(("sigmoid", "softmax"), _usual_router(config), *ROUTER_KEYS),
        "scale": config.number("routed_scaling_factor", 1.0),
        "groups": config.optional_size("n_group", "num_expert_group") or 1,
        "top_groups": config.optional_size("topk_group") or 1,
    }
    latent = config.optional_size("routed_expert_hidden_size")
    if latent is not None:
        moe["latent"] = latent
    first = _dense_at_the_start(config)
    return {"dense_layers": first, "dense_intermediate": dense if first else None, "moe": moe}


def _dense_at_the_start(config: Config) -> int:
    if "mlp_layer_types" not in config.data:
        return config.optional_size("first_k_dense_replace") or 0
    kinds = config.words("mlp_layer_types", ("dense", "sparse"))
    first = kinds.count("dense")
    if "dense" in kinds[first:]:
        raise config.wrong(f"{config.prefix}mlp_layer_types: dense layers that are not the first")
    return first
