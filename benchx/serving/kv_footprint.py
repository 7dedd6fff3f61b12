"""Bytes of cache and state that a prefill leaves in the engine that a scenario describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchx.architectures import Architecture, load_architecture, shipped_architectures
from benchx.architectures.cache import (
    CacheFormat,
    cache_bytes_per_token,
    state_bytes_per_sequence,
)
from benchx.core.errors import UsageError
from benchx.serving.engines.base import EngineSettings

_DTYPES: Mapping[str, str] = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    "float32": "float32",
    "float": "float32",
    "float8_e4m3": "fp8",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}
_RESHAPING = ("hf-overrides", "hf_overrides", "json-model-override-args")
_STATE_DTYPES = ("mamba-ssm-cache-dtype", "mamba_ssm_cache_dtype", "mamba-ssm-dtype")


@dataclass(frozen=True, kw_only=True)
class KvFootprint:
    """What one sequence leaves behind, all ranks together once.

    Attributes:
        architecture: Title of the model.
        token_bytes: Cache of one token, bytes.
        sequence_bytes: Recurrent state of one sequence, bytes; 0 without linear attention.
        form: Types that were counted, `bfloat16 cache, float32 state`.
    """

    architecture: str
    token_bytes: int
    sequence_bytes: int
    form: str


def kv_footprint(settings: EngineSettings) -> KvFootprint:
    """From `engine.architecture`, else from the model's own name or config.json.

    Args:
        settings: As prepared: a model that was built on the spot is a folder.

    Raises:
        BenchxError: The architecture or a type is unknown: nothing is guessed.
    """
    arch = _architecture(settings)
    own = _own_dtype(settings)
    form = CacheFormat(
        cache_dtype=_known("engine.kv_cache_dtype", settings.kv_cache_dtype) or own,
        state_dtype=_known("engine.args", _first(settings.args, _STATE_DTYPES)) or "float32",
        conv_dtype=own,
    )
    state = state_bytes_per_sequence(arch, form)
    return KvFootprint(
        architecture=arch.title,
        token_bytes=cache_bytes_per_token(arch, form),
        sequence_bytes=state,
        form=f"{form.cache_dtype} cache" + (f", {form.state_dtype} state" if state else ""),
    )


def _architecture(settings: EngineSettings) -> Architecture:
    if settings.architecture is not None:
        return load_architecture(settings.architecture)
    if any(name in settings.args for name in _RESHAPING):
        raise UsageError("engine.args change the model's shape; name engine.architecture")
    model = str(settings.model)
    if model not in shipped_architectures() and not (Path(model) / "config.json").is_file():
        raise UsageError("the model's shape is unknown; name engine.architecture")
    return load_architecture(model)


def _own_dtype(settings: EngineSettings) -> str:
    """Type that the model computes in: the scenario's, its config's, else bfloat16."""
    named = _known("engine.dtype", settings.dtype)
    return named or _known("dtype in config.json", _config(settings).get("dtype")) or "bfloat16"


def _config(settings: EngineSettings) -> Mapping[str, Any]:
    try:
        plain = json.loads((Path(str(settings.model)) / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    config = plain.get("text_config") or plain
    return {"dtype": config.get("dtype") or config.get("torch_dtype")}


def _first(args: Mapping[str, Any], names: tuple[str, ...]) -> object:
    return next((args[name] for name in names if name in args), None)


def _known(key: str, value: object) -> str | None:
    """Our name of a type; None where none is said (`auto`)."""
    if value is None or value == "auto":
        return None
    if str(value) not in _DTYPES:
        raise UsageError(f"{key} is {value}, whose bytes per value are unknown")
    return _DTYPES[str(value)]
