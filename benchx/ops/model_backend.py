"""Who computes a model point: our stack, its attention by a named backend of each operator.

A backend is called after them, KDA's first: `triton+sdpa`. A model with one kind of attention has
one name: `sdpa`. Beside them stands transformers' own model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import benchx.ops.catalog  # noqa: F401 - registers the operators' backends
from benchx.architectures.descriptor import Architecture
from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.errors import UsageError
from benchx.ops.base import Backend, Unavailable, backends_of
from benchx.ops.model_attention import OperatorAttention
from benchx.ops.model_inputs import ModelInputs
from benchx.ops.model_points import ModelPoint
from benchx.ops.model_transformers import NAME as TRANSFORMERS
from benchx.ops.model_transformers import TransformersBackend

if TYPE_CHECKING:
    from benchx.core.call import Tensors
    from benchx_kernels.model_cache import KdaCache, StackCache

GQA = "sdpa"
"""Grouped-query attention is torch's scaled_dot_product_attention: no operator of ours has it."""


def model_backend_names(arch: Architecture, phase: str) -> tuple[str, ...]:
    """Every backend of a model: its stack's, in the operators' order, and transformers' model."""
    return (*stack_backend_names(arch, phase), TRANSFORMERS)


def model_backend(
    name: str, arch: Architecture, subject: str, phase: str
) -> StackBackend | TransformersBackend:
    """The backend called `name` of an architecture.

    Raises:
        UsageError: It has none of that name.
    """
    if name == TRANSFORMERS:
        return TransformersBackend(operator=subject, phase=phase)
    return StackBackend.named(name, arch, subject, phase)


def stack_backend_names(arch: Architecture, phase: str) -> tuple[str, ...]:
    """Those of the stack, named after what computes its attention."""
    if arch.mla is None:
        return (GQA,)
    mla = backends_of(f"mla_{phase}").names()
    if arch.kda is None:
        return mla
    kda = backends_of(f"kda_{phase}").names()
    return tuple(f"{one}+{other}" for one in kda for other in mla)


@dataclass(frozen=True, kw_only=True)
class StackBackend:
    """The stack with the backends that `name` names; a `Backend[ModelInputs]`.

    Attributes:
        name: See the module.
        operator: The architecture.
        kda: Backend of KDA layers, if the architecture has any.
        mla: Backend of MLA layers, if it has any.
        phase: prefill or decode.
    """

    name: str
    operator: str
    kda: Backend[Any] | None
    mla: Backend[Any] | None
    phase: str

    @classmethod
    def named(cls, name: str, arch: Architecture, subject: str, phase: str) -> StackBackend:
        """The backend called `name` of an architecture.

        Raises:
            UsageError: It has none of that name.
        """
        if name not in stack_backend_names(arch, phase):
            raise UsageError(f"{subject} has no backend {name!r}")
        kda, _, mla = name.rpartition("+")
        return cls(
            name=name,
            operator=subject,
            kda=backends_of(f"kda_{phase}").get(kda) if kda else None,
            mla=backends_of(f"mla_{phase}").get(mla) if arch.mla is not None else None,
            phase=phase,
        )

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """What the operators' backends say of the layers' shapes; KDA's first."""
        point = ModelPoint.of(self.operator, params)
        asked = ((self.kda, point.kda_params()), (self.mla, point.mla_params()))
        for backend, layer in asked:
            refusal = backend.unavailable(layer, device) if backend and layer else None
            if refusal is not None:
                return refusal
        return None

    def prepare(self, inputs: ModelInputs) -> PreparedCall:
        """Allocates the cache; the first call of a decode step binds the layers."""
        attention, held = OperatorAttention(self.kda, self.mla), inputs.new_cache()
        states = _States.of(held)

        def run() -> Tensors:
            held.tokens = inputs.prefix
            if inputs.decode:
                logits = inputs.stack.forward(inputs.tokens, held, attention, decode=True)
            else:
                logits = inputs.stack.prefill(inputs.tokens, held, attention, chunk=inputs.chunk)
            return {"logits": logits}

        # In prefill backends are prepared anew for every call, which no graph can hold.
        return PreparedCall(
            run=run,
            reset=lambda: states.restore(held),
            graph_safe=inputs.decode,
            left=held.content,
        )

    def provenance(self) -> Mapping[str, Any]:
        """Version of torch, and what the operators' backends say of themselves."""
        import torch

        parts = {"kda": self.kda, "mla": self.mla}
        told = {name: dict(part.provenance()) for name, part in parts.items() if part is not None}
        return {"package": "torch", "version": torch.__version__, **told}


@dataclass(frozen=True)
class _States:
    """Recurrent states and windows as they were before the first call."""

    before: list[tuple[Any, Any]]

    @classmethod
    def of(cls, cache: StackCache) -> _States:
        kept = _recurrent(cache)
        return cls([(layer.state.clone(), layer.window.clone()) for layer in kept])

    def restore(self, cache: StackCache) -> None:
        for layer, (state, window) in zip(_recurrent(cache), self.before, strict=True):
            layer.state.copy_(state)
            layer.window.copy_(window)


def _recurrent(cache: StackCache) -> list[KdaCache]:
    """The layers whose cache a step changes in place."""
    from benchx_kernels.model_cache import KdaCache

    return [layer for layer in cache.layers if isinstance(layer, KdaCache)]
