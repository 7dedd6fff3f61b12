"""A call ready to be checked and timed, and what its outputs must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The fp64 truth for one set of inputs.

    Attributes:
        outputs: Output name -> fp64 tensor of the output's shape, or of the selected heads only.
        method: How it was computed; stored in the record.
        heads: Indices along `head_dims` that `outputs` covers; None means all.
        head_dims: Output name -> dimension of the output that `heads` indexes.
    """

    outputs: Tensors
    method: str
    heads: tuple[int, ...] | None = None
    head_dims: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputSpec:
    """Shape and dtype that every backend must return for one output."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class PreparedCall:
    """A backend bound to one set of inputs.

    Attributes:
        run: One call, as timed; returns the outputs by name (layout conversions that a user of
            the backend would not pay for happen in `prepare`, not here).
        reset: Restores whatever `run` changed in place (a decode state), outside the timed
            region; None when `run` leaves its inputs as they were.
        graph_safe: Whether `run` may be captured in a CUDA graph.
        left: What the last `run` left in place besides its outputs (a cache, states), by name.
            Only whether its values are numbers is looked at; None when there is nothing.
    """

    run: Callable[[], Tensors]
    reset: Callable[[], None] | None = None
    graph_safe: bool = True
    left: Callable[[], Tensors] | None = None
