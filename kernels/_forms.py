"""What a launch depends on of its tensors, so that arguments are checked once for each form.

Checking a decode step's arguments and choosing its cut takes longer than the step itself; both
depend on the tensors' forms only, so the kernels keep what they found under the forms as a key.
Values are not part of a form: no kernel here reads any back.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

PLANS = 1024
"""Forms that a kernel remembers; the least recently used one goes first."""


class Form(NamedTuple):
    """Everything of a tensor but its values and its address; answers like a tensor.

    Attributes:
        shape: Sizes.
        strides: In elements.
        dtype: Of the elements.
        device: Where they are.
        aligned: Whether the address is a multiple of 16 bytes.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def stride(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self.strides

    def is_contiguous(self) -> bool:
        """Whether the elements lie densely, the last dimension fastest."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True


Described = torch.Tensor | Form
"""What arguments can be checked by."""


def form_of(tensor: torch.Tensor) -> Form:
    """The form of a tensor; about a microsecond, no device call.

    Raises:
        ValueError: It is none.
    """
    try:
        return Form(
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
            tensor.device,
            tensor.data_ptr() % 16 == 0,
        )
    except (AttributeError, TypeError) as error:
        raise ValueError(f"expected a tensor, got {tensor!r:.40}") from error


def form_or_none(tensor: torch.Tensor | None) -> Form | None:
    """`form_of` of an optional argument."""
    return None if tensor is None else form_of(tensor)
