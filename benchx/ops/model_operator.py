"""A phase of a model in the form of an operator: inputs, truth and costs of its points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchx.architectures import load_architecture
from benchx.core.axes import AxisSpec, Params
from benchx.core.call import OutputSpec, Reference
from benchx.core.record import Work
from benchx.core.units import format_bytes
from benchx.ops.mla_inputs import torch_dtype
from benchx.ops.model_inputs import ModelInputs, stack_shape
from benchx.ops.model_points import AXES, ModelPoint, point_problem

if TYPE_CHECKING:
    import torch

PROBE_SEQUENCES = 2
PROBE_TOKENS = 168
PROBE_PREFIX = 24
PROBE_CHUNK = 136
"""The truth of a prompt takes fp64 through the whole stack, so a short one with the same weights
and backends is judged: two sequences, in two passes, behind a prefix if the point has one. The
first pass is more than two chunks of 64 tokens, the longest that a kernel of ours or a third
party's cuts a sequence into: what is carried from chunk to chunk is judged too."""


@dataclass(frozen=True)
class ModelOperator:
    """An `Operator[ModelInputs]`; output `logits` [B, vocab] of the last token, in the dtype.

    Attributes:
        name: Name or path of the architecture.
        phase: prefill or decode.
    """

    name: str
    phase: str

    @property
    def title(self) -> str:
        """Heading for people."""
        return f"{self.name} {self.phase}"

    @property
    def max_rms_ratio(self) -> float:
        """Rounding makes 0.01 to 0.02 in bf16; another expert for a token makes more.

        A last bit may change which expert is the eighth. Its weight is an eighth of the router's
        scale (2.4 in Kimi Linear), so of a stream of a few unit variances a tenth changes: up to
        0.11 was seen of two sequences, of our stack and of transformers' alike. Kernels are
        judged without that, and strictly, at their own level.
        """
        return 0.05 if load_architecture(self.name).moe is None else 0.25

    @property
    def axes(self) -> Mapping[str, AxisSpec]:
        """See `model_points`."""
        return AXES[self.phase]

    def problem(self, params: Params) -> str | None:
        """See `point_problem`."""
        return point_problem(self.name, {**params, "phase": self.phase})

    def make_inputs(self, params: Params, *, seed: int, device: torch.device) -> ModelInputs:
        """Random weights and a random prompt.

        Raises:
            MemoryError: Weights and cache alone are more than the device has.
        """
        import torch

        from benchx_kernels.model_stack import Stack

        point = ModelPoint.of(self.name, params)
        _check_memory(point, device)
        stack = Stack(
            stack_shape(point.arch),
            seed=seed,
            dtype=torch_dtype(str(params["dtype"])),
            device=device,
        )
        drawn = torch.Generator(device).manual_seed(seed)
        size = (point.sequences, point.new)
        return ModelInputs(
            arch=point.arch,
            stack=stack,
            tokens=torch.randint(point.arch.vocab, size, generator=drawn, device=device),
            prefix=point.prefix,
            chunk=point.chunk,
            decode=point.decode,
            cache_dtype=torch_dtype(point.cache_dtype),
            state_dtype=torch_dtype(str(params["state_dtype"])),
            seed=seed,
        )

    def probe(self, inputs: ModelInputs) -> ModelInputs:
        """A short prompt on the same weights, which the truth can be computed of."""
        new = inputs.tokens.shape[1] if inputs.decode else PROBE_TOKENS
        return replace(
            inputs,
            tokens=inputs.tokens[:PROBE_SEQUENCES, :new],
            prefix=min(inputs.prefix, PROBE_PREFIX),
            chunk=min(inputs.chunk, PROBE_CHUNK),
        )

    def output_specs(self, inputs: ModelInputs) -> Mapping[str, OutputSpec]:
        """`logits` as above."""
        shape = (inputs.tokens.shape[0], inputs.stack.shape.vocab)
        return {"logits": OutputSpec(shape, inputs.stack.dtype)}

    def reference(self, inputs: ModelInputs) -> Reference:
        """The same weights and cache in fp64, attention in torch, all tokens in one pass."""
        import torch

        from benchx_kernels.model_attention import TorchAttention

        held, exact = inputs.new_cache(), torch.float64
        for layer in held.layers:
            for name, value in vars(layer).items():
                setattr(layer, name, value.to(exact))
        logits = inputs.stack.forward(
            inputs.tokens, held, TorchAttention(), decode=inputs.decode, dtype=exact
        )
        sequences, new = inputs.tokens.shape
        method = f"fp64 stack, {sequences} x {new} tokens behind {inputs.prefix}"
        return Reference(outputs={"logits": logits}, method=method)

    def work(self, params: Params) -> Work:
        """See `ModelPoint.work`."""
        return ModelPoint.of(self.name, params).work()


def _check_memory(point: ModelPoint, device: torch.device) -> None:
    """Refuse what can't fit before gigabytes are drawn; what is merely tight may try."""
    from benchx.measure.device import probe_device

    weights, states = point.weight_bytes(), 2 * point.state_bytes()
    expanded = point.expanded_bytes()
    expands = f", expanded keys and values {format_bytes(expanded)}" if expanded else ""
    rows = point.cache_bytes(point.prefix + point.new)
    has = probe_device(device.index or 0).memory_bytes
    needs = weights + rows + states + expanded
    if needs > has:
        raise MemoryError(
            f"would have to allocate {format_bytes(needs)}: weights {format_bytes(weights)}, cache "
            f"{format_bytes(rows)}, states {format_bytes(states)}{expands}; the device has "
            f"{format_bytes(has)}"
        )
