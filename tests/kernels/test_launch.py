"""Arguments are checked and kernels looked up once for each form of the tensors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchx_kernels._forms import form_of
from benchx_kernels._launch import Launcher

Launch = Callable[..., object]


class Kernel:
    """Stands in for a Triton kernel: remembers what it was called with."""

    arg_names = ("x", "n", "WIDTH", "MASKED")

    def __init__(self, *, compiles: bool) -> None:
        self.looked_up: list[tuple[Any, ...]] = []
        self.relaunched: list[tuple[Any, ...]] = []
        self.compiles = compiles

    def __getitem__(self, grid: tuple[int, int, int]) -> Launch:
        def launch(*arguments: object, **constants: object) -> object:
            self.looked_up.append((grid, arguments, constants))
            return Compiled(self) if self.compiles else None

        return launch


class Compiled:
    """What a kernel returns; takes every argument by place."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, int, int]) -> Launch:
        return lambda *arguments: self.kernel.relaunched.append((grid, arguments))


def launcher(kernel: Kernel) -> Launcher:
    constants = {"MASKED": 1, "WIDTH": 64}  # not in the kernel's order
    return Launcher(cast(Any, kernel), constants, {"num_warps": 4})


def test_a_kernel_is_looked_up_once_and_then_takes_its_constants_in_its_own_order() -> None:
    kernel = Kernel(compiles=True)
    launch = launcher(kernel)
    launch((1, 1, 1), "x", 5)
    launch((2, 1, 1), "y", 6)
    constants = {"MASKED": 1, "WIDTH": 64, "num_warps": 4}
    assert kernel.looked_up == [((1, 1, 1), ("x", 5), constants)]
    assert kernel.relaunched == [((2, 1, 1), ("y", 6, 64, 1))]


def test_the_interpreter_which_compiles_nothing_is_called_every_time() -> None:
    kernel = Kernel(compiles=False)
    launch = launcher(kernel)
    launch((1, 1, 1), "x", 5)
    launch((1, 1, 1), "x", 5)
    assert len(kernel.looked_up) == 2


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_a_form_is_contiguous_when_its_tensor_is(sizes: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(sizes))))
    step = data.draw(st.integers(1, 2))
    tensor = torch.empty(sizes).permute(order)[..., ::step]
    assert form_of(tensor).is_contiguous() == tensor.is_contiguous()


@pytest.mark.parametrize(
    "other",
    [
        torch.empty(2, 8).half(),
        torch.empty(2, 4),
        torch.empty(8, 2).t(),
        torch.empty(2, 8, device="meta"),
        torch.empty(17)[1:].view(2, 8),
    ],
    ids=["dtype", "shape", "strides", "device", "alignment"],
)
def test_what_a_launch_depends_on_changes_the_form(other: torch.Tensor) -> None:
    assert form_of(torch.empty(2, 8)) == form_of(torch.empty(2, 8))
    assert form_of(other) != form_of(torch.empty(2, 8))


@pytest.mark.parametrize("other", [None, 1.0, [1.0], torch.zeros])
def test_what_is_no_tensor_has_no_form(other: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="expected a tensor, got "):
        form_of(other)


def test_a_descriptor_describes_its_tensor_and_keeps_no_other_alive() -> None:
    hopper = pytest.importorskip("benchx_kernels._mla_hopper")
    first = torch.zeros(3, 64, 576, dtype=torch.bfloat16)
    gone = weakref.ref(first)
    main, rope = hopper.decode_views(512, first)
    assert main.base is first
    assert (main.shape, main.strides, main.block_shape) == ([192, 576], [576, 1], [64, 256])
    assert rope.block_shape == [64, 64]
    second = first.clone()
    assert hopper.decode_views(512, second)[0].base is second
    assert main.base is first
    del first, main, rope
    gc.collect()
    assert gone() is None
