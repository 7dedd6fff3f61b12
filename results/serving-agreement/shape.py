"""A folder that makes vLLM serve a model of 7 billion weights that nobody has to have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LLAMA_8B: Mapping[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "dtype": "bfloat16",
}
"""Widths of Llama 3.1 8B, as in its config.json (the vocabulary is the tokenizer's)."""

SMALL: Mapping[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
"""For two CPU cores: a decode step takes some 30 ms.

A tiny model's takes 3, and then the engine, which is one Python process, outruns its own thread
that sends: whole answers reach any client at once, 200 ms and more after the engine's own clock.
"""

_WEIGHTS = (".safetensors", ".bin", ".index.json")


def write_shape(tiny: Path, folder: Path, config: Mapping[str, Any]) -> None:
    """Everything of a tiny model but its weights, with a config.json of another size.

    Args:
        tiny: Its folder: tokenizer and config.json.
        folder: Where the new one goes; must be there.
        config: Fields in the place of those of `LLAMA_8B`.
    """
    for file in tiny.iterdir():
        if not file.name.endswith(_WEIGHTS):
            shutil.copy(file, folder)
    own = json.loads((tiny / "config.json").read_text())
    own.pop("torch_dtype", None)
    (folder / "config.json").write_text(json.dumps({**own, **LLAMA_8B, **config}, indent=1))
