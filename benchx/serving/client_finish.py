"""What the end of an answer means: the reason that the server gives, and the length it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from benchx.serving.http_capture import Fault
from benchx.serving.request import RequestOutcome

GOOD_FINISHES = frozenset(
    (
        *("stop", "length", "tool_calls", "function_call"),  # the OpenAI API
        *("eos", "eos_token", "stop_sequence"),  # TGI and what speaks like it
        *("end_turn", "max_tokens", "tool_use", "model_length"),  # gateways to other APIs
    )
)
"""Reasons (lower case) with which a model ends an answer by itself or at the length asked for."""


def finish_fault(reason: str | None) -> Fault | None:
    """Why an answer with this `finish_reason` is no complete one; None when it is.

    Whatever is not known to be good is a failure (`abort`, `content_filter`, ...): the server ended
    the answer, and its times are not those of the answer that was asked for. `error` is the same as
    an error event that names no code.
    """
    if reason is None or reason.lower() in GOOD_FINISHES:
        return None
    outcome = RequestOutcome.TRUNCATED
    if reason.lower() == "error":
        outcome = RequestOutcome.PROTOCOL
    return Fault(outcome, f"the server ended the answer early: finish_reason {reason[:60]!r}")


def demands_exact_length(fields: Mapping[str, Any], max_tokens: int) -> bool:
    """Whether the fields of a request's body forbid an answer of fewer than `max_tokens`.

    `ignore_eos` (vLLM, SGLang, TensorRT-LLM, llama.cpp), `min_tokens` (vLLM), or `min_new_tokens`
    within a `generation_config` (transformers).
    """
    if fields.get("ignore_eos") is True:
        return True
    config = fields.get("generation_config")
    try:
        inner = orjson.loads(config) if isinstance(config, str) else config
    except orjson.JSONDecodeError:
        inner = None
    least = inner.get("min_new_tokens") if isinstance(inner, dict) else fields.get("min_tokens")
    return isinstance(least, int) and least >= max_tokens
