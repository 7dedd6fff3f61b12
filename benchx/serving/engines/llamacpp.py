"""llama.cpp: its own `llama-server`, or the Python server of llama-cpp-python.

The Python server ends running streams when the next request comes unless told not to, computes
one request at a time, and gives no usage in streams.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
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
from benchx.serving.engines.python_package import interpreter, untranslatable
from benchx.serving.request import Endpoint

INSTALL = "pip install 'llama-cpp-python[server]' (compiles), or a llama-server on the path"
_SERVER = "llama-server"
_SHARED = frozenset(("kv-unified", "kvu"))
"""Flags with which all slots share one cache, and a sequence may take all of it."""

_NO_FLAG = (
    "data_parallel",
    "dtype",
    "eager",
    "expert_parallel",
    "gpu_memory_share",
    "load_format",
    "max_context_pages",
    "pipeline_parallel",
    "tensor_parallel",
    "tokenizer",
    "trust_remote_code",
)


class LlamacppEngine:
    """`llama-server` when it is on the path and no `python` is named, else the Python server."""

    name = "llamacpp"
    title = "llama.cpp's server, native or in Python"
    distributions: tuple[str, ...] = ("llama-cpp-python",)
    starts = True

    def missing(self, settings: EngineSettings) -> Unavailable | None:
        """Needs either server and a GGUF file."""
        if settings.model is None:
            return NO_MODEL
        if refused := untranslatable(settings, *_NO_FLAG):
            return refused
        if settings.python:
            there = shutil.which(settings.python[0]) is not None
        else:
            there = self._is_native(settings) or find_spec("llama_cpp") is not None
        if there:
            return None
        reason = "no llama.cpp server was found"
        return Unavailable(outcome=Outcome.SKIPPED, reason=reason, install=INSTALL)

    def prepare(self, settings: EngineSettings) -> EngineSettings:
        """Nothing to make."""
        return settings

    def launch(self, settings: EngineSettings, *, port: int) -> Launch:
        """Flags differ between the two servers."""
        native = self._is_native(settings)
        typed = _native_flags(settings) if native else _python_flags(settings)
        start = (_SERVER,) if native else (*interpreter(settings), "-m", "llama_cpp.server")
        where: dict[str, ArgValue | None] = {"host": settings.host, "port": port}
        env = {"HF_HUB_OFFLINE": "1", **settings.env}
        return Launch(command=command_line(start, where | typed, settings.args), env=env)

    def endpoint(self, settings: EngineSettings, *, port: int) -> Endpoint:
        """One model per server: its name is free."""
        return own_endpoint(settings, port=port)

    def capabilities(self, settings: EngineSettings) -> Capabilities:
        """The Python server has neither a health check nor metrics; its list of models answers."""
        native = self._is_native(settings)
        return Capabilities(
            usage="on_request" if native else "never",
            done_marker=True,
            token_ids=native,
            batches=native,
            health_path="/health" if native else "/v1/models",
            metrics_path="/metrics" if native else None,
            tokenize_path="/tokenize" if native else None,
        )

    def exact_length(self, tokens: int) -> Mapping[str, Any]:
        """The end of a sequence is ignored (native server; the Python one drops the field)."""
        return {"ignore_eos": True}

    def _is_native(self, settings: EngineSettings) -> bool:
        return not settings.python and shutil.which(_SERVER) is not None


def _native_flags(settings: EngineSettings) -> dict[str, ArgValue | None]:
    return {
        "model": settings.model,
        "alias": settings.served_model,
        "ctx-size": _context(settings),
        "parallel": settings.max_num_seqs,
        "batch-size": settings.max_batched_tokens,
        "cache-type-k": settings.kv_cache_dtype,
        "cache-type-v": settings.kv_cache_dtype,
        "no-cache-prompt": True if settings.prefix_caching is False else None,
        "metrics": True,
    }


def _context(settings: EngineSettings) -> int | None:
    """Tokens of the whole cache: it is divided by the slots unless they share it."""
    length, slots = settings.max_model_len, settings.max_num_seqs
    if length is None or slots is None or _SHARED & settings.args.keys():
        return length
    return length * slots


def _python_flags(settings: EngineSettings) -> dict[str, ArgValue | None]:
    return {
        "model": settings.model,
        "model_alias": settings.served_model,
        "n_ctx": settings.max_model_len,
        "n_batch": settings.max_batched_tokens,
        "interrupt_requests": "False",
    }


ENGINES.add("llamacpp", LlamacppEngine())
