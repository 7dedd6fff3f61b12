"""`transformers serve`: the embedded default, since it runs on any machine.

Continuous batching works for plain attention only (5.24: MLA answers 200 with nothing, linear
attention 500); without it requests are computed one after the other, so TTFT under load is
queueing. There is no server metric. The stream ends without `[DONE]`; usage always comes with the
last chunk. Unknown fields of a request are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchx.core.outcome import Unavailable
from benchx.serving.engines.base import (
    ENGINES,
    ArgValue,
    Capabilities,
    EngineSettings,
    own_endpoint,
)
from benchx.serving.engines.flags import command_line
from benchx.serving.engines.process import Launch
from benchx.serving.engines.python_package import interpreter, package_missing, untranslatable
from benchx.serving.request import Endpoint
from benchx.serving.tiny_model import BUILT_IN, TinyModel, build

INSTALL = "pip install 'benchx[transformers]'"
CACHE_BLOCKS = 512
"""Sizing the paged cache by itself makes the first request take 15 s (5.24 on two cores)."""

_BATCHING = "continuous-batching"
_NO_FLAG = (
    "kv_cache_dtype",
    "max_model_len",
    "max_num_seqs",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "prefix_caching",
    "load_format",
)


class TransformersEngine:
    """See the module."""

    name = "transformers"
    title = "transformers serve: runs anywhere, on a tiny model built on the spot if asked"
    distributions: tuple[str, ...] = ("transformers",)
    starts = True

    def missing(self, settings: EngineSettings) -> Unavailable | None:
        """Needs transformers with its serving extra."""
        modules = ("transformers", "uvicorn", "fastapi", "openai")
        return untranslatable(settings, *_NO_FLAG) or package_missing(settings, modules, INSTALL)

    def prepare(self, settings: EngineSettings) -> EngineSettings:
        """Build the model when `model` names one of `tiny_model.BUILT_IN`."""
        config = BUILT_IN.get(str(settings.model))
        if config is None:
            return settings
        folder = build(TinyModel(config=config), python=interpreter(settings))
        return replace(settings, model=str(folder))

    def launch(self, settings: EngineSettings, *, port: int) -> Launch:
        """The served name is the model's path as given: the server knows no other."""
        batching = self._batches(settings)
        typed: dict[str, ArgValue | None] = {
            "host": settings.host,
            "port": port,
            "dtype": settings.dtype,
            "trust-remote-code": settings.trust_remote_code or None,
            "cb-max-memory-percent": settings.gpu_memory_share,
        }
        if batching and _BATCHING not in settings.args:
            typed[_BATCHING] = True
        if batching:
            typed["cb-num-blocks"] = settings.max_context_pages or CACHE_BLOCKS
            typed["cb-max-batch-tokens"] = settings.max_batched_tokens
        start = (*interpreter(settings), "-m", "transformers.cli.transformers", "serve")
        program = (*start, str(settings.model))
        # One thread: with two, a token takes ten times as long when the other core is busy.
        env = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **settings.env}
        return Launch(command=command_line(program, typed, settings.args), env=env)

    def endpoint(self, settings: EngineSettings, *, port: int) -> Endpoint:
        """Usage comes unasked, and asking for it makes the server log a warning."""
        found = own_endpoint(settings, port=port)
        return replace(found, model=str(settings.model), ask_usage=False)

    def capabilities(self, settings: EngineSettings) -> Capabilities:
        """Text prompts only, no metrics."""
        return Capabilities(
            usage="always",
            done_marker=False,
            token_ids=False,
            batches=self._batches(settings),
        )

    def exact_length(self, tokens: int) -> Mapping[str, Any]:
        """A generation config (as JSON text) without an end-of-sequence token."""
        config = {"min_new_tokens": tokens, "max_new_tokens": tokens, "eos_token_id": -1}
        return {"generation_config": json.dumps(config)}

    def _batches(self, settings: EngineSettings) -> bool:
        if _BATCHING in settings.args:
            return settings.args[_BATCHING] is True
        return f"no-{_BATCHING}" not in settings.args and has_plain_attention(settings.model)


def has_plain_attention(model: str | None) -> bool:
    """Whether the model in a folder is known to have neither latent nor linear attention."""
    try:
        config = json.loads((Path(str(model)) / "config.json").read_text())
    except (OSError, ValueError):
        return False
    text = config.get("text_config") or config
    linear = any("linear" in str(kind) for kind in text.get("layer_types") or ())
    return not linear and not text.get("kv_lora_rank") and "linear_attn_config" not in text


ENGINES.add("transformers", TransformersEngine())
