"""A Hugging Face `config.json` as a descriptor; what is not understood is refused by name.

Guessing would be worse than refusing: experts sized by `hidden_size` double Kimi K3's checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchx.architectures.descriptor import Architecture
from benchx.core.errors import BenchxError, Location, nearest_word
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


ROUTER_KEYS = ("scoring_func", "moe_router_activation_func")
SOFTMAX_ROUTERS = ("deepseek_v2", "qwen3_moe")
"""Whose router's scores are a softmax where the config does not name their form."""


class ConfigError(BenchxError):
    """A config.json that does not describe a model that is understood.

    Args:
        path: The file.
        problem: Key, what was got, what was expected.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem}",
            hint="complete the file, or write a descriptor (see the shipped architectures)",
        )


@dataclass(frozen=True)
class Config:
    """The language model's part of a config, with look-ups that name what is missing."""

    data: Mapping[str, Any]
    path: Path
    prefix: str = ""

    def size(self, *names: str) -> int:
        """A whole number of at least 0 under one of several names; required."""
        value = self.optional_size(*names)
        if value is None:
            also = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            raise self.wrong(f"{self.prefix}{names[0]}{also} is missing; expected a whole number")
        return value

    def optional_size(self, *names: str) -> int | None:
        """The same, None where none of the names is there; names that differ are refused."""
        found = {name: self.data[name] for name in names if self.data.get(name) is not None}
        for name, value in found.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise self.wrong(f"{self.prefix}{name} is {value!r}; expected a whole number")
        if len(set(found.values())) > 1:
            told = " and ".join(f"{self.prefix}{name} {value}" for name, value in found.items())
            raise self.wrong(f"{told} contradict each other")
        return next(iter(found.values()), None)

    def flag(self, name: str) -> bool:
        """True or false; absent is false."""
        value = self.data.get(name) or False
        if not isinstance(value, bool):
            raise self.wrong(f"{self.prefix}{name} is {value!r}; expected true or false")
        return value

    def number(self, name: str, absent: float) -> float:
        """A number above 0."""
        value = self.data.get(name)
        if value is None:
            return absent
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.wrong(f"{self.prefix}{name} is {value!r}; expected a number above 0")
        return float(value)

    def word(self, choices: Sequence[str], absent: str, *names: str) -> str:
        """One of `choices` under one of several names."""
        for name in names:
            value = self.data.get(name)
            if value is not None and value not in choices:
                known = " or ".join(choices)
                raise self.wrong(f"{self.prefix}{name} is {value!r}; expected {known}")
            if value is not None:
                return str(value)
        return absent

    def layers(self, name: str) -> tuple[int, ...]:
        """A list of layer numbers; required."""
        value = self.data.get(name)
        if not isinstance(value, Sequence) or not all(type(item) is int for item in value):
            raise self.wrong(f"{self.prefix}{name} is {value!r}; expected a list of layer numbers")
        return tuple(value)

    def words(self, name: str, known: Sequence[str]) -> tuple[str, ...]:
        """One of the known words for each layer; required."""
        value, layers = self.data.get(name), self.size("num_hidden_layers")
        listed = value if isinstance(value, list) else []
        if len(listed) != layers or not all(word in known for word in listed):
            raise self.wrong(
                f"{self.prefix}{name} is {value!r}; expected {layers} of {', '.join(known)}"
            )
        return tuple(listed)

    def part(self, name: str) -> Config:
        """A nested mapping; required."""
        value = self.data.get(name)
        if not isinstance(value, Mapping):
            raise self.wrong(f"{self.prefix}{name} is missing; expected a mapping")
        return Config(value, self.path, f"{self.prefix}{name}.")

    def wrong(self, problem: str) -> ConfigError:
        """The error to raise."""
        return ConfigError(self.path, problem)


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
    config = _language_model(text, path)
    if not isinstance(config.data.get("model_type"), str):
        raise config.wrong(
            f"{config.prefix}model_type is missing; known: {', '.join(ARCHITECTURES)}"
        )
    model_type = str(config.data["model_type"])
    if model_type not in ARCHITECTURES:
        near = nearest_word(model_type, ARCHITECTURES)
        tail = f"; did you mean {near!r}?" if near else f"; known: {', '.join(ARCHITECTURES)}"
        raise config.wrong(f"{config.prefix}model_type {model_type!r} is not known{tail}")
    _refuse_unknown(config)
    built = _frame(config, path) | _attention(config, ARCHITECTURES[model_type]) | _mlp(config)
    known = {key: value for key, value in built.items() if value is not None}
    return validated(Architecture, Located.from_plain(known, Location(path)))


def _language_model(text: str, path: Path) -> Config:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(path, f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(path, f"a {type(data).__name__}; expected a mapping")
    config = Config(data, path)
    return config.part("text_config") if "text_config" in data else config


def _refuse_unknown(config: Config) -> None:
    """What would change cache or weights, and is not modelled."""
    for name in ("index_topk", "compress_ratios", "cross_attention_layers"):
        if config.data.get(name):
            raise config.wrong(f"{config.prefix}{name} is set; such attention is not modelled")
    if config.data.get("use_sliding_window"):
        raise config.wrong(f"{config.prefix}use_sliding_window is set; it is not modelled")
    if config.data.get("moe_layer_freq", 1) != 1:
        value = config.data["moe_layer_freq"]
        raise config.wrong(f"{config.prefix}moe_layer_freq is {value!r}; only 1 is modelled")


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
        "max_context": config.optional_size("max_position_embeddings")
        or config.optional_size("model_max_length")
        or config.size("max_position_embeddings", "model_max_length"),
        "tied_embeddings": config.flag("tie_word_embeddings"),
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
    if kind == "hybrid" and "linear_attn_config" not in config.data:
        found |= _hybrid_by_layer_types(config)
    elif kind == "hybrid":
        linear = config.part("linear_attn_config")
        found |= {"full_attention": linear.layers("full_attn_layers"), "kda": _kda(linear)}
        _check_pattern(linear, config.size("num_hidden_layers"))
    return found


def _hybrid_by_layer_types(config: Config) -> dict[str, Any]:
    """The form in which transformers (5.x) itself writes Kimi Linear's config."""
    kinds = config.words("layer_types", ("linear_attention", "full_attention"))
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
    bound = linear.data.get("gate_lower_bound")
    return {
        "heads": linear.size("num_heads"),
        "head_dim": linear.size("head_dim"),
        "value_dim": linear.size("head_dim"),
        "conv": linear.size("short_conv_kernel_size"),
        "gate": "softplus" if bound is None else "bounded",
        "lower_bound": -5.0 if bound is None else float(bound),
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
    width = config.optional_size("head_dim")
    if width is None and (not heads or hidden % heads):
        raise config.wrong(
            f"{config.prefix}head_dim is missing, and num_attention_heads {heads} does not divide "
            f"hidden_size {hidden}"
        )
    return {
        "heads": heads,
        "kv_heads": config.optional_size("num_key_value_heads") or heads,
        "head_dim": width if width is not None else hidden // heads,
        "qk_norm": config.data.get("model_type") in QK_NORM,
    }


def _mlp(config: Config) -> dict[str, Any]:
    experts = config.optional_size("num_experts", "n_routed_experts", "num_local_experts")
    layers, dense = config.size("num_hidden_layers"), config.optional_size("intermediate_size")
    if not experts:
        return {"dense_layers": layers, "dense_intermediate": config.size("intermediate_size")}
    moe: dict[str, Any] = {
        "experts": experts,
        "top_k": config.size("num_experts_per_token", "num_experts_per_tok"),
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
