"""A tiny random model of Kimi Linear's kind, built on the spot: no download, valid speed only.

Three layers of KDA and one of MLA, experts included, with a byte-level BPE that is trained on a
made-up corpus. It says nothing about Kimi Linear's own speed: it makes a real engine run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchx.core.errors import RunFailed
from benchx.serving import tiny_model_script

KIMI_LINEAR: Mapping[str, Any] = {
    "model_type": "kimi_linear",
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "linear_num_heads": 4,
    "linear_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "max_position_embeddings": 32768,
}
"""Its layers are three of KDA to one of MLA, as in the real one (arXiv 2510.26692)."""

LLAMA: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
}
"""A plain one for engines, or modes of engines, that know no linear attention."""

BUILT_IN: Mapping[str, Mapping[str, Any]] = {"tiny": KIMI_LINEAR, "tiny-llama": LLAMA}
"""Names that a scenario may give as `engine.model`."""

_BUILD_LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """What to build; equal ones share a folder.

    Attributes:
        config: Fields of the model's config.json, vocabulary excluded.
        vocabulary: Most tokens of the tokenizer.
        dtype: Of the weights.
        seed: Of corpus and weights.
    """

    config: Mapping[str, Any] = field(default_factory=lambda: KIMI_LINEAR)
    vocabulary: int = 4096
    dtype: str = "float32"
    seed: int = 0

    @property
    def digest(self) -> str:
        """Names the folder: everything that decides what is in it."""
        source = Path(tiny_model_script.__file__).read_bytes()
        text = json.dumps(asdict(self), sort_keys=True).encode()
        return hashlib.sha256(source + text).hexdigest()[:12]


def cache_folder() -> Path:
    """Where built models are kept: the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "benchx" / "models"


def build(model: TinyModel, *, python: Sequence[str] = (), into: Path | None = None) -> Path:
    """The folder of the model, built if it is not there yet (about ten seconds).

    Args:
        model: What to build.
        python: Program that runs a Python with transformers; empty: this one.
        into: Where models are kept; None: the user's cache folder.

    Raises:
        RunFailed: When the builder fails, in its own words.
    """
    home = cache_folder() if into is None else into
    folder = home / f"{model.config['model_type']}-{model.digest}"
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".building-", dir=home))
    try:
        _run_builder(model, python or (sys.executable,), fresh)
        # Whole or not at all, also when two builders meet.
        fresh.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise RunFailed(f"can't keep the tiny model in {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _run_builder(model: TinyModel, python: Sequence[str], folder: Path) -> None:
    command = [*python, tiny_model_script.__file__, str(folder), json.dumps(asdict(model))]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=_BUILD_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"building the tiny model took over {_BUILD_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RunFailed(
            f"the tiny model can't be built: {words}",
            hint="pip install 'benchx[transformers]' brings what it needs",
        )
