"""Correct before fast: outputs against the fp64 reference, with a reason for every failure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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

VECTOR_SHARE = 0.25
VECTOR_ALLOWANCE = 10.0
"""A single vector (along the last dimension: one head of one token) may be off by the larger of a
quarter of its own rms and ten times the bound on the rms of its head. A row of all heads hides one
head that is missing, and the rms of all tokens hides early ones, which are small while the state
fills. Rounding passes with room: a vector that cancels to little keeps the rounding of its terms,
so what is small beside its head is judged by the head.
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
    `bound` is wrong, and so is a row (index along the first dimension) whose rms error exceeds
    20 x `bound` x max(rms of that row, rms of all), a vector (along the last dimension) whose rms
    error exceeds max(max(1/4, 10 x `bound`) x its rms, 10 x `bound` x rms of its head), a missing
    output, a wrong shape or dtype, NaN or infinity anywhere. Where the reference does not say
    which dimension counts heads, all of them are one. Of heads that the reference does not cover,
    one of zeros alone is wrong where no covered one is. Outputs beyond `specs` are ignored.

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
            errors = _compare(name, outputs[name], reference, bound)
            problem = errors.problem(name, bound) or _empty_head(name, outputs[name], reference)
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


@dataclass(frozen=True, kw_only=True)
class _Errors:
    """How far one output is off.

    Attributes:
        ratio: Of all of it.
        worst_row: Index along the first dimension.
        worst_row_ratio: By the scale of rows.
        vector: Where the worst vector lies, all but the last index.
        vector_ratio: Its error by its own rms; infinite where that is 0.
        vector_excess: Its error by what is allowed; above 1 is wrong.
        not_finite: Values that are no numbers.
        total: All values.
    """

    ratio: float = 0.0
    worst_row: int = 0
    worst_row_ratio: float = 0.0
    vector: tuple[int, ...] = ()
    vector_ratio: float = 0.0
    vector_excess: float = 0.0
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
        if not self.vector_excess <= 1:
            return (
                f"{name}: rms ratio {self.ratio:.3g} is within {bound:.3g}, but "
                f"{list(self.vector)} is off by {self.vector_ratio:.3g} of its own rms"
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


def _compare(name: str, output: torch.Tensor, reference: Reference, bound: float) -> _Errors:
    output = output.detach()
    not_finite = _not_finite(output)
    truth = _truth(name, reference)
    selected = _select_heads(name, output, reference)
    if truth.shape != selected.shape:
        raise RunFailed(
            f"the reference of {name!r} has shape {tuple(truth.shape)}, "
            f"the output (heads selected) {tuple(selected.shape)}"
        )
    found = _Errors(not_finite=not_finite, total=output.numel())
    if not selected.numel():
        return found
    error, norm = _squares(name, selected, truth)
    found = _overall(found, error, norm)
    if selected.dim() < 2:  # a value alone has no direction to be wrong in
        return found
    head_dim, shape = reference.head_dims.get(name), selected.shape[:-1]
    found = _worst_vector(found, error.view(shape), norm.view(shape), bound, head_dim)
    return _with_true_head(found, reference, head_dim)


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


def _empty_head(name: str, output: torch.Tensor, reference: Reference) -> str | None:
    """A head that nobody wrote to, among those that the reference does not cover."""
    dim, covered = reference.head_dims.get(name), reference.heads
    if covered is None or dim is None or not output.numel():
        return None
    truth = reference.outputs[name]
    if not all(bool(truth.select(dim, index).any()) for index in range(len(covered))):
        return None
    heads = (head for head in range(output.shape[dim]) if head not in covered)
    empty = [head for head in heads if not bool(output.select(dim, head).any())]
    return f"{name}: nothing but zeros in heads {'+'.join(map(str, empty))}" if empty else None


def _row_chunks(tensor: torch.Tensor, elements: int) -> Iterator[torch.Tensor]:
    """Slices along dimension 0 of about `_CHUNK_ELEMENTS` each, flattened to [rows, rest]."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not elements:
        return
    step = max(1, _CHUNK_ELEMENTS * rows // elements)
    shaped = tensor if tensor.dim() else tensor.reshape(1)
    for begin in range(0, rows, step):
        yield shaped[begin : begin + step].reshape(min(step, rows - begin), -1)


def _squares(
    name: str, output: torch.Tensor, truth: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean squares of the error and of the reference, per vector: [rows, vectors], fp64, CPU.

    A vector lies along the last dimension; in one dimension each value is one.
    """
    import torch

    width = output.shape[-1] if output.dim() > 1 else 1
    errors, norms = [], []
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
        shape = (got.shape[0], -1, width)
        errors.append((got.double() - exact).square_().view(shape).mean(2).cpu())
        norms.append(exact.square().view(shape).mean(2).cpu())
    return torch.cat(errors), torch.cat(norms)


def _overall(found: _Errors, error: torch.Tensor, norm: torch.Tensor) -> _Errors:
    """The ratio of all of it, and the worst row."""
    mean_norm = float(norm.mean())
    ratio = math.sqrt(float(error.mean()) / (mean_norm or 1.0))
    row_scale = norm.mean(1).clamp(min=mean_norm or 1.0)
    row_ratio = (error.mean(1) / row_scale).sqrt()
    worst = int(row_ratio.argmax())
    return replace(found, ratio=ratio, worst_row=worst, worst_row_ratio=float(row_ratio[worst]))


def _worst_vector(
    found: _Errors, error: torch.Tensor, norm: torch.Tensor, bound: float, head_dim: int | None
) -> _Errors:
    """The vector that is furthest beyond what is allowed; `error` and `norm` by their indices."""
    import torch

    allowed = VECTOR_ALLOWANCE * bound
    others = [dim for dim in range(norm.dim()) if dim != head_dim]
    of_head = norm.mean(others, keepdim=True)
    of_head = torch.where(of_head > 0, of_head, 1.0)  # an absolute bound, as for all of it
    limit = torch.maximum(norm * max(VECTOR_SHARE, allowed) ** 2, of_head * allowed**2)
    excess = (error / limit).sqrt()
    where = tuple(int(index) for index in torch.unravel_index(excess.argmax(), excess.shape))
    own = float(norm[where])
    return replace(
        found,
        vector=where,
        vector_ratio=math.sqrt(float(error[where]) / own) if own else math.inf,
        vector_excess=float(excess[where]),
    )


def _with_true_head(found: _Errors, reference: Reference, head_dim: int | None) -> _Errors:
    """The vector's head counted among all, where the reference covers some of them."""
    if reference.heads is None or head_dim is None or head_dim >= len(found.vector):
        return found
    where = list(found.vector)
    where[head_dim] = reference.heads[where[head_dim]]
    return replace(found, vector=tuple(where))
