"""Correct before fast: outputs against the fp64 reference, with a reason for every failure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.call import OutputSpec, Reference
from benchx.core.device import Device
from benchx.core.errors import RunFailed
from benchx.core.record import Check

if TYPE_CHECKING:
    import torch

_CHUNK_ELEMENTS = 2**23
"""Elements compared at once: 64 MiB per fp64 temporary."""

ROW_ALLOWANCE = 20.0
"""A single row may be this many times further off than the bound for the whole output. An rms
over 131072 tokens hides one token that is entirely wrong (its share is 0.4 %), and wrong last
tokens are a real kind of bug; rounding alone keeps rows within a small multiple of each other.
"""


@dataclass(frozen=True)
class Verdict:
    """Outcome of a check.

    Attributes:
        check: Ratios, bound and method; None when no ratio could be computed.
        reason: Why the outputs are wrong; None when they are right.
    """

    check: Check | None
    reason: str | None


def judge(
    outputs: object, specs: Mapping[str, OutputSpec], reference: Reference, bound: float
) -> Verdict:
    """Compare what a backend returned with the fp64 reference.

    Per output the ratio is rms(output - reference) / rms(reference), over the heads that the
    reference covers; where rms(reference) is 0 it is rms(output - reference) itself, so the
    bound is then an absolute one; an output without elements has ratio 0. A ratio above
    `bound`, or a row (index along the first dimension) whose rms error exceeds
    20 x `bound` x max(rms of that row, rms of all) is wrong, as is a missing output, a wrong
    shape or dtype, NaN or infinity anywhere. Outputs beyond those in `specs` are ignored.

    Args:
        outputs: Whatever `run` returned; anything but a mapping of tensors is a reason.
        specs: What had to be returned.
        reference: fp64, finite; compared on the output's device, 64 MiB at a time.
        bound: Largest ratio that passes.

    Raises:
        RunFailed: The reference itself lacks an output, has another shape or is not finite:
            an error of ours, never the backend's.
    """
    if not isinstance(outputs, Mapping):
        return Verdict(None, _no_mapping(outputs, specs))
    problems: list[str] = []
    ratios: dict[str, float] = {}
    for name, spec in specs.items():
        problem = _form_problem(name, outputs, spec)
        if problem is None:
            errors = _compare(name, outputs[name], reference)
            problem = errors.problem(name, bound)
            if math.isfinite(errors.ratio):
                ratios[name] = errors.ratio
        if problem is not None:
            problems.append(problem)
    check = Check(rms_ratio=ratios, bound=bound, method=reference.method) if ratios else None
    return Verdict(check, "; ".join(problems) or None)


def unsound(
    outputs: object, specs: Mapping[str, OutputSpec], left: Mapping[str, torch.Tensor]
) -> str | None:
    """Why a call can't be right whatever its truth is, or None.

    For a call whose truth takes too long to compute: its outputs must have the shapes and dtypes
    of `specs`, and neither they nor what it `left` in place may hold NaN or infinity.
    """
    if not isinstance(outputs, Mapping):
        return _no_mapping(outputs, specs)
    problems: list[str | None] = []
    for name, spec in specs.items():
        problem = _form_problem(name, outputs, spec)
        problems.append(problem or _number_problem(name, outputs[name]))
    problems += [_number_problem(name, tensor) for name, tensor in left.items()]
    return "; ".join(problem for problem in problems if problem) or None


def poison(specs: Mapping[str, OutputSpec], device: Device) -> None:
    """Fill freed memory of the outputs' sizes with NaN, so that unwritten elements show.

    Call it just before the run that is judged: the caching allocator hands the same blocks to
    outputs of the same size. Integer outputs are filled with their largest value.
    """
    import torch

    blocks = []
    for spec in specs.values():
        value = math.nan if spec.dtype.is_floating_point else torch.iinfo(spec.dtype).max
        block = torch.empty(spec.shape, dtype=spec.dtype, device=device.torch_device)
        blocks.append(block.fill_(value))
    del blocks


@dataclass(frozen=True)
class _Errors:
    """How far one output is off: overall, in its worst row, and how many values are no numbers."""

    ratio: float
    worst_row: int
    worst_row_ratio: float
    not_finite: int
    total: int

    def problem(self, name: str, bound: float) -> str | None:
        if self.not_finite:
            return _no_numbers(name, self.not_finite, self.total)
        if not self.ratio <= bound:
            return f"{name}: rms ratio {self.ratio:.3g} is above {bound:.3g}"
        if not self.worst_row_ratio <= ROW_ALLOWANCE * bound:
            return (
                f"{name}: rms ratio {self.ratio:.3g} is within {bound:.3g}, but row "
                f"{self.worst_row} is off by {self.worst_row_ratio:.3g}"
            )
        return None


def _no_mapping(outputs: object, specs: Mapping[str, OutputSpec]) -> str:
    return f"returned {_kind(outputs)}, expected a mapping with {', '.join(specs)}"


def _number_problem(name: str, tensor: torch.Tensor) -> str | None:
    count = _not_finite(tensor.detach())
    return _no_numbers(name, count, tensor.numel()) if count else None


def _no_numbers(name: str, count: int, total: int) -> str:
    return f"{name}: {count} of {total} values are NaN or infinite"


def _not_finite(tensor: torch.Tensor) -> int:
    """How many values are NaN or infinite; fp8 has no `isfinite` of its own, hence fp64."""
    import torch

    parts = _row_chunks(tensor, tensor.numel())
    return sum(int((~torch.isfinite(part.double())).sum()) for part in parts)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _form_problem(name: str, outputs: Mapping[str, object], spec: OutputSpec) -> str | None:
    import torch

    if name not in outputs:
        return f"{name}: missing; returned {', '.join(map(str, outputs)) or 'nothing'}"
    value = outputs[name]
    if not isinstance(value, torch.Tensor):
        return f"{name}: {_kind(value)}, expected a tensor"
    if tuple(value.shape) != tuple(spec.shape):
        return f"{name}: shape {tuple(value.shape)}, expected {tuple(spec.shape)}"
    if value.dtype != spec.dtype:
        return f"{name}: dtype {_word(value.dtype)}, expected {_word(spec.dtype)}"
    if value.layout != torch.strided or value.is_meta:
        return f"{name}: a tensor without plain memory ({value.layout}, {value.device})"
    return None


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _compare(name: str, output: torch.Tensor, reference: Reference) -> _Errors:
    output = output.detach()
    not_finite = _not_finite(output)
    truth = _truth(name, reference)
    selected = _select_heads(name, output, reference)
    if truth.shape != selected.shape:
        raise RunFailed(
            f"the reference of {name!r} has shape {tuple(truth.shape)}, "
            f"the output (heads selected) {tuple(selected.shape)}"
        )
    row_error, row_norm = _row_squares(name, selected, truth)
    return _summary(row_error, row_norm, selected, not_finite, output.numel())


def _truth(name: str, reference: Reference) -> torch.Tensor:
    if name not in reference.outputs:
        raise RunFailed(f"the reference has no output {name!r}")
    return reference.outputs[name].detach()


def _select_heads(name: str, output: torch.Tensor, reference: Reference) -> torch.Tensor:
    """The heads of `output` that the reference covers; all where it covers all."""
    import torch

    if reference.heads is None or name not in reference.head_dims:
        return output
    heads = torch.tensor(reference.heads, device=output.device)
    return output.index_select(reference.head_dims[name], heads)


def _row_chunks(tensor: torch.Tensor, elements: int) -> Iterator[torch.Tensor]:
    """Slices along dimension 0 of about `_CHUNK_ELEMENTS` each, flattened to [rows, rest]."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not elements:
        return
    step = max(1, _CHUNK_ELEMENTS * rows // elements)
    shaped = tensor if tensor.dim() else tensor.reshape(1)
    for begin in range(0, rows, step):
        yield shaped[begin : begin + step].reshape(min(step, rows - begin), -1)


def _row_squares(
    name: str, output: torch.Tensor, truth: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Per row, sums of squares of the error and of the reference, both fp64 on the CPU."""
    import torch

    errors, norms = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.float64)]
    chunks = zip(
        _row_chunks(output, output.numel()), _row_chunks(truth, truth.numel()), strict=True
    )
    for got, wanted in chunks:
        exact = wanted.to(device=got.device, dtype=torch.float64)
        if not bool(torch.isfinite(exact).all()):
            raise RunFailed(
                f"the reference of {name!r} holds NaN or infinity",
                hint="the inputs or the reference are at fault, not the backend",
            )
        errors.append((got.double() - exact).square_().sum(1).cpu())
        norms.append(exact.square().sum(1).cpu())
    return torch.cat(errors), torch.cat(norms)


def _summary(
    row_error: torch.Tensor,
    row_norm: torch.Tensor,
    selected: torch.Tensor,
    not_finite: int,
    total: int,
) -> _Errors:
    count = selected.numel()
    if not count:
        return _Errors(0.0, 0, 0.0, not_finite, total)
    mean_norm = float(row_norm.sum()) / count
    ratio = math.sqrt(float(row_error.sum()) / count / (mean_norm or 1.0))
    per_row = count / row_error.numel()
    row_scale = (row_norm / per_row).clamp(min=mean_norm or 1.0)
    row_ratio = (row_error / per_row / row_scale).sqrt()
    worst = int(row_ratio.argmax())
    return _Errors(ratio, worst, float(row_ratio[worst]), not_finite, total)
