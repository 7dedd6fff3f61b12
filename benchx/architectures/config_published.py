"""What a `config.json` says of the published model beside its widths."""

from __future__ import annotations

from collections.abc import Mapping

from benchx.architectures.config_file import Config

PRECISIONS = {"bfloat16": "bfloat16", "float16": "bfloat16", "float32": "float32"}
"""dtype of the weights -> precision of a descriptor with as many bytes."""

_BIASED = ("qwen2",)
"""Whose q, k and v have biases: the config does not say so."""


def checkpoint(config: Config) -> dict[str, str]:
    """Precision of the published weights, by `quantization_config` where it is a known one.

    fp8 counts for all weights, as in the shipped descriptors, though norms, routers and the
    embedding stay wider: little of a large model. MXFP4 is of routed experts only.
    """
    name = _dtype(config)
    method = _quantisation(config)
    if method == "fp8":
        return {"routed_experts": "fp8", "others": "fp8"}
    if method == "mxfp4-pack-quantized":
        return {"routed_experts": "mxfp4", "others": name}
    return {"routed_experts": name, "others": name}


_STRETCHING = ("linear", "dynamic")
"""Kinds of rope scaling whose config names the length before it is stretched."""

_NAMING = ("llama3", "longrope", "su", "mrope")
"""Kinds whose config names the longest context itself."""


def longest_context(config: Config) -> int:
    """Longest sequence that the model is published for, in tokens.

    Three kinds of rope scaling stretch the length that it was trained at by a factor, as vLLM
    derives its longest context too: YaRN (arXiv 2309.00071), `linear` and `dynamic`. Where a config
    says what that length was, the one it names may be the result already. Other kinds name the
    result (llama3, longrope), or are unknown here: then `omitted` says so.
    """
    named = config.optional_size("max_position_embeddings")
    named = named or config.optional_size("model_max_length")
    if not named:
        return config.size("max_position_embeddings", "model_max_length")
    scaling = _rope_scaling(config)
    kind = None if scaling is None else _rope_type(scaling)
    if scaling is None or kind not in ("yarn", *_STRETCHING):
        return named
    trained = scaling.optional_size("original_max_position_embeddings")
    if trained is None:
        trained = named if kind in _STRETCHING else 0
    return max(named, round(trained * scaling.number("factor", 1.0)))


def omitted(config: Config) -> tuple[str, ...]:
    """What the descriptor leaves out, in words for people."""
    scaling, method = _rope_scaling(config), _quantisation(config)
    kind = None if scaling is None else _rope_type(scaling)
    known = (None, "fp8", "mxfp4-pack-quantized")
    biased = config.data.get("attention_bias") or config.data.get("model_type") in _BIASED
    told = (
        ("vision_config" in config.whole, "vision tower"),
        ("audio_config" in config.whole, "audio tower"),
        (config.optional_size("num_nextn_predict_layers"), "multi-token prediction module"),
        (biased, "biases of attention"),
        (
            kind not in (None, "default"),
            f"rope scaling ({kind}), which changes positions but no size",
        ),
        (
            kind not in (None, "default", "yarn", *_STRETCHING, *_NAMING),
            f"what rope scaling of the unknown kind {kind} makes of the longest context",
        ),
        (
            method not in known,
            f"quantisation by {method}: weights are counted in {_dtype(config)}",
        ),
    )
    return tuple(text for holds, text in told if holds)


def _dtype(config: Config) -> str:
    value = config.shared("dtype") or config.shared("torch_dtype") or "bfloat16"
    if not isinstance(value, str) or value not in PRECISIONS:
        raise config.wrong(f"dtype (or torch_dtype) is {value!r}; expected {', '.join(PRECISIONS)}")
    return PRECISIONS[value]


def _quantisation(config: Config) -> str | None:
    """The method, and of compressed-tensors its format, which says more; None: not quantised."""
    value = config.shared("quantization_config")
    if value is None:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("quant_method"), str):
        raise config.wrong("quantization_config.quant_method is missing; expected a word")
    method = str(value["quant_method"])
    return str(value.get("format", method)) if method == "compressed-tensors" else method


def _rope_scaling(config: Config) -> Config | None:
    """`rope_scaling`, in transformers 5 `rope_parameters`."""
    for name in ("rope_scaling", "rope_parameters"):
        if config.data.get(name) is not None:
            return config.part(name)
    return None


def _rope_type(scaling: Config) -> object:
    return scaling.data.get("rope_type") or scaling.data.get("type") or "default"
