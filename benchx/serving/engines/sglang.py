"""SGLang: continuous batching, radix cache, metrics when asked for."""

from __future__ import annotations

from collections.abc import Mapping
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

INSTALL = "pip install sglang"


class SglangEngine:
    """Its wheels need an NVIDIA GPU; there is no CPU build on the package index."""

    name = "sglang"
    title = "SGLang's OpenAI-compatible server"
    distributions: tuple[str, ...] = ("sglang",)
    starts = True

    def missing(self, settings: EngineSettings) -> Unavailable | None:
        """Needs the package sglang."""
        return untranslatable(settings, "max_context_pages") or package_missing(
            settings, ("sglang",), INSTALL
        )

    def prepare(self, settings: EngineSettings) -> EngineSettings:
        """Nothing to make."""
        return settings

    def launch(self, settings: EngineSettings, *, port: int) -> Launch:
        """Metrics and the cached part of a prompt are reported only on request: both are asked."""
        typed: dict[str, ArgValue | None] = {
            "model-path": settings.model,
            "host": settings.host,
            "port": port,
            "served-model-name": settings.served_model,
            "tokenizer-path": settings.tokenizer,
            "load-format": settings.load_format,
            "dtype": settings.dtype,
            "kv-cache-dtype": settings.kv_cache_dtype,
            "context-length": settings.max_model_len,
            "max-running-requests": settings.max_num_seqs,
            "chunked-prefill-size": settings.max_batched_tokens,
            "tensor-parallel-size": settings.tensor_parallel,
            "pipeline-parallel-size": settings.pipeline_parallel,
            "data-parallel-size": settings.data_parallel,
            "expert-parallel-size": _experts(settings),
            "mem-fraction-static": settings.gpu_memory_share,
            "disable-radix-cache": True if settings.prefix_caching is False else None,
            "disable-cuda-graph": settings.eager or None,
            "trust-remote-code": settings.trust_remote_code or None,
            "enable-metrics": True,
            "enable-cache-report": True,
        }
        program = (*interpreter(settings), "-m", "sglang.launch_server")
        env = {"HF_HUB_OFFLINE": "1", **settings.env}
        return Launch(command=command_line(program, typed, settings.args), env=env)

    def endpoint(self, settings: EngineSettings, *, port: int) -> Endpoint:
        """The usual address."""
        return own_endpoint(settings, port=port)

    def capabilities(self, settings: EngineSettings) -> Capabilities:
        """Token ids as prompts of completions; hits of GPU and host cache come as one figure."""
        return Capabilities(
            usage="on_request",
            done_marker=True,
            token_ids=True,
            chunk_usage=True,
            metrics_path="/metrics",
            version_paths=("/server_info", "/get_server_info"),
        )

    def exact_length(self, tokens: int) -> Mapping[str, Any]:
        """The end of a sequence is ignored."""
        return {"ignore_eos": True}


def _experts(settings: EngineSettings) -> int | None:
    """SGLang takes a size where others take yes or no: experts over all tensor-parallel GPUs."""
    return settings.tensor_parallel if settings.expert_parallel else None


ENGINES.add("sglang", SglangEngine())
