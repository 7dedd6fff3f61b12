"""TensorRT-LLM: `trtllm-serve`, PyTorch backend; most settings live in one YAML of options."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchx.core.outcome import Outcome, Unavailable
from benchx.serving.engines.base import (
    ENGINES,
    NO_MODEL,
    ArgValue,
    Capabilities,
    EngineSettings,
    own_endpoint,
)
from benchx.serving.engines.flags import command_line
from benchx.serving.engines.process import Launch
from benchx.serving.engines.python_package import untranslatable
from benchx.serving.request import Endpoint

INSTALL = "pip install tensorrt-llm"
_PROGRAM = "trtllm-serve"
_NO_FLAG = (
    "data_parallel",
    "dtype",
    "eager",
    "kv_cache_dtype",
    "load_format",
    "max_context_pages",
    "prefix_caching",
)
"""These go into the file named by `args: {extra_llm_api_options: ...}`."""


class TrtllmEngine:
    """`python` names the program and what comes before it (`[mpirun, -n, 1, trtllm-serve]`)."""

    name = "trtllm"
    title = "TensorRT-LLM's trtllm-serve"
    distributions: tuple[str, ...] = ("tensorrt-llm",)
    starts = True

    def missing(self, settings: EngineSettings) -> Unavailable | None:
        """Needs the program on the path."""
        if settings.model is None:
            return NO_MODEL
        program = self._program(settings)[0]
        if shutil.which(program) is None:
            reason = f"there is no program {program}"
            return Unavailable(outcome=Outcome.SKIPPED, reason=reason, install=INSTALL)
        return untranslatable(settings, *_NO_FLAG)

    def prepare(self, settings: EngineSettings) -> EngineSettings:
        """Nothing to make."""
        return settings

    def launch(self, settings: EngineSettings, *, port: int) -> Launch:
        """Flags of this program are spelled with underscores."""
        experts = settings.tensor_parallel if settings.expert_parallel else None
        typed: dict[str, ArgValue | None] = {
            "host": settings.host,
            "port": port,
            "tokenizer": settings.tokenizer,
            "max_seq_len": settings.max_model_len,
            "max_batch_size": settings.max_num_seqs,
            "max_num_tokens": settings.max_batched_tokens,
            "tp_size": settings.tensor_parallel,
            "pp_size": settings.pipeline_parallel,
            "ep_size": experts,
            "kv_cache_free_gpu_memory_fraction": settings.gpu_memory_share,
            "trust_remote_code": settings.trust_remote_code or None,
        }
        program = (*self._program(settings), str(settings.model))
        env = {"HF_HUB_OFFLINE": "1", **settings.env}
        return Launch(command=command_line(program, typed, settings.args), env=env)

    def endpoint(self, settings: EngineSettings, *, port: int) -> Endpoint:
        """The server names the model after its folder unless told otherwise."""
        folder = str(settings.model).rstrip("/").rsplit("/", 1)[-1]
        return replace(own_endpoint(settings, port=port), model=settings.served_model or folder)

    def capabilities(self, settings: EngineSettings) -> Capabilities:
        """Prometheus text only with `return_perf_metrics` in its options."""
        return Capabilities(
            usage="on_request",
            done_marker=True,
            token_ids=True,
            metrics_path="/prometheus/metrics",
            flags_show_drafts=False,  # they are in the file of its options
            version_paths=("/version",),
        )

    def exact_length(self, tokens: int) -> Mapping[str, Any]:
        """The end of a sequence is ignored."""
        return {"ignore_eos": True}

    def _program(self, settings: EngineSettings) -> tuple[str, ...]:
        return settings.python or (_PROGRAM,)


ENGINES.add("trtllm", TrtllmEngine())
