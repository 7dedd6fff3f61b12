"""Runs the Hopper kernels' own source on a CPU, since no interpreter of Gluon exists.

Each warpgroup is a thread, barriers have phases, arrivals and bytes to come as on the chip, copies
arrive late and leave NaN until then. A product is computed when it is started and again when it is
waited for: if those differ, an operand was not ready or was overwritten too early. What this can't
show: layouts, fences, and whether the compiler keeps the order.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol
from unittest.mock import patch

import torch

Number = int | float | torch.Tensor
HUNG_S = 30.0
LATEST_S = 2e-3
NO_LAYOUT = SimpleNamespace(layout=None)


class Value(torch.Tensor):
    """A tensor in registers; `+=` and `*=` make a new one, as in Gluon."""

    type = NO_LAYOUT  # type: ignore[assignment]

    def __iadd__(self, other: Number) -> Value:  # type: ignore[override,misc]
        return value(self + other)

    def __imul__(self, other: Number) -> Value:  # type: ignore[override,misc]
        return value(self * other)


def value(x: Number) -> Value:
    """Anything as a `Value`."""
    return torch.as_tensor(x).as_subclass(Value)


@dataclass(frozen=True)
class Pointer:
    """Addresses: a base tensor and offsets in elements."""

    base: torch.Tensor
    offset: int | torch.Tensor = 0

    def __add__(self, other: int | torch.Tensor) -> Pointer:
        return Pointer(self.base, self.offset + other)

    @property
    def dtype(self) -> SimpleNamespace:
        """As kernels ask for it."""
        return SimpleNamespace(element_ty=self.base.dtype)


def load(at: Pointer, mask: torch.Tensor | None = None, other: float = 0.0) -> Value:
    """`gl.load`; an address outside the tensor is an IndexError."""
    offset = torch.as_tensor(at.offset)
    everything = torch.ones_like(offset, dtype=torch.bool)
    inside = everything if mask is None else mask.expand(offset.shape)
    found = at.base.view(-1)[torch.where(inside, offset, 0)]
    return value(torch.where(inside, found, torch.tensor(other, dtype=found.dtype)))


def store(at: Pointer, x: torch.Tensor, mask: torch.Tensor) -> None:
    """`gl.store`."""
    offset = torch.as_tensor(at.offset)
    inside = mask.expand(offset.shape)
    at.base.view(-1)[offset[inside]] = x.expand(offset.shape)[inside].to(at.base.dtype)


@dataclass(frozen=True)
class Shared:
    """A view of shared memory."""

    data: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        """Of the view."""
        return self.data.shape

    def index(self, at: int | torch.Tensor) -> Shared:
        """One entry of the first dimension."""
        return Shared(self.data[int(at)])

    def slice(self, start: int, length: int, dim: int) -> Shared:
        """A part of one dimension."""
        return Shared(self.data.narrow(dim, start, length))

    def permute(self, order: Sequence[int]) -> Shared:
        """Dimensions in another order."""
        return Shared(self.data.permute(*order))

    def load(self, _layout: object) -> Value:
        """Into registers."""
        return value(self.data.clone())

    def store(self, x: torch.Tensor) -> None:
        """From registers."""
        self.data.copy_(x)


class Described(Protocol):
    """What is used of a tensor descriptor."""

    base: torch.Tensor
    shape: list[int]
    block_shape: list[int]


class Barrier:
    """Counts arrivals and bytes of one phase after another."""

    def __init__(self, count: int) -> None:
        self.changed = threading.Condition()
        self.count = self.missing = count
        self.expected_bytes = self.phase = 0

    def add(self, arrivals: int, coming_bytes: int) -> None:
        """Arrivals, and bytes that are to come (or came, if negative)."""
        with self.changed:
            self.missing -= arrivals
            self.expected_bytes += coming_bytes
            assert self.missing >= 0, "more arrivals than a phase has"
            if self.missing == 0 and self.expected_bytes == 0:
                self.phase, self.missing = self.phase + 1, self.count
                self.changed.notify_all()

    def wait(self, parity: int) -> None:
        """Until the phase of that parity is complete."""
        with self.changed:
            done = self.changed.wait_for(lambda: self.phase % 2 != parity, timeout=HUNG_S)
        assert done, "hung at a barrier"


@dataclass
class Product:
    """One asynchronous product."""

    a: Shared | torch.Tensor
    b: Shared
    started: torch.Tensor

    def finish(self) -> None:
        """Raise if an operand changed since it was started."""
        same = torch.equal(multiply(self.a, self.b).nan_to_num(7e7), self.started.nan_to_num(7e7))
        assert same, "an operand of a running product was overwritten"


def multiply(a: Shared | torch.Tensor, b: Shared) -> torch.Tensor:
    """The product in fp32."""
    left = a.data if isinstance(a, Shared) else a
    return left.as_subclass(torch.Tensor).float() @ b.data.float()


@dataclass(frozen=True)
class Running:
    """An accumulator whose products may still run."""

    total: torch.Tensor
    products: tuple[Product, ...]


@dataclass
class Chip:
    """Barriers of a program, and each thread's running products."""

    barriers: dict[int, Barrier] = field(default_factory=dict)
    running: threading.local = field(default_factory=threading.local)
    program: tuple[int, int, int] = (0, 0, 0)

    def barrier(self, at: Shared) -> Barrier:
        """The barrier that lives there."""
        return self.barriers[at.data.data_ptr()]

    def init(self, at: Shared, count: int) -> None:
        """`mbarrier.init`."""
        self.barriers[at.data.data_ptr()] = Barrier(count)

    def copy_in(
        self, source: Described, at: Sequence[int | torch.Tensor], done: Shared, target: Shared
    ) -> None:
        """A tile of a described tensor, zeros outside it; arrives within `LATEST_S`."""
        assert list(target.shape) == list(source.block_shape)
        target.data.fill_(torch.nan)
        rows, first = source.base.view(*source.shape), [int(x) for x in at]
        barrier = self.barrier(done)

        def arrive() -> None:
            time.sleep(random.random() * LATEST_S)
            part = rows[first[0] :, first[1] :][: target.shape[0], : target.shape[1]]
            target.data.zero_()
            target.data[: part.shape[0], : part.shape[1]] = part
            barrier.add(0, -target.data.numel() * target.data.element_size())

        threading.Thread(target=arrive).start()

    def mma(
        self,
        a: Shared | torch.Tensor,
        b: Shared,
        acc: Running | torch.Tensor,
        *,
        use_acc: bool = True,
        is_async: bool = False,
    ) -> Running:
        """`warpgroup_mma`."""
        before = acc.products if isinstance(acc, Running) else ()
        held = acc.total if isinstance(acc, Running) else acc
        started = Product(a, b, multiply(a, b))
        self._queue().append(started)
        total = started.started + held if use_acc else started.started
        return Running(total.as_subclass(torch.Tensor), (*before, started))

    def mma_wait(self, outstanding: int, deps: Sequence[Running]) -> Value:
        """`warpgroup_mma_wait` of one dependency."""
        queue = self._queue()
        while len(queue) > outstanding:
            queue.pop(0).finish()
        (found,) = deps
        still = [x for x in found.products if any(x is y for y in queue)]
        assert not still, "an accumulator is used while its products run"
        return value(found.total)

    def _queue(self) -> list[Product]:
        if not hasattr(self.running, "products"):
            self.running.products = []
        products: list[Product] = self.running.products
        return products

    def specialize(self, parts: Sequence[tuple[Callable[..., None], Sequence[Any]]]) -> None:
        """Every part in a thread of its own; the first error is raised."""
        errors: list[BaseException] = []

        def run(part: Callable[..., None], arguments: Sequence[Any]) -> None:
            try:
                part(*arguments)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=part) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HUNG_S)
        if errors:
            raise errors[0]

    def language(self) -> SimpleNamespace:
        """Stands in for `gluon.language`."""

        def fresh(dtype: torch.dtype, shape: Sequence[int], _layout: object) -> Shared:
            fill = torch.nan if dtype.is_floating_point else 0
            return Shared(torch.full(list(shape), fill, dtype=dtype))

        def layout(*_: object, **__: object) -> None:
            return None

        def pair(function: Callable[..., torch.Tensor]) -> Callable[..., Value]:
            return lambda a, b: value(function(torch.as_tensor(a), torch.as_tensor(b)))

        return SimpleNamespace(
            constexpr=int, int64=torch.int64, int32=torch.int32, float32=torch.float32,
            program_id=lambda axis: value(self.program[axis]), load=load, store=store,
            allocate_shared_memory=fresh, static_range=range, static_assert=lambda _: None,
            arange=lambda low, high, layout: value(torch.arange(low, high)),
            zeros=lambda shape, dtype, layout: value(torch.zeros(shape, dtype=dtype)),
            full=lambda shape, x, dtype, layout: value(torch.full(shape, x, dtype=dtype)),
            zeros_like=torch.zeros_like, where=lambda c, a, b: value(torch.where(c, a, b)),
            minimum=pair(torch.minimum), maximum=pair(torch.maximum), exp2=torch.exp2,
            log2=torch.log2, max=torch.amax, sum=torch.sum, convert_layout=lambda x, _: x,
            NVMMADistributedLayout=layout, SliceLayout=layout, BlockedLayout=layout,
            DotOperandLayout=layout, SwizzledSharedLayout=layout,
            NVMMASharedLayout=SimpleNamespace(get_default_for=layout),
            to_tensor=lambda x: x, inline_asm_elementwise=lambda *_, **__: None,
            warp_specialize=lambda parts, *_: self.specialize(parts),
        )  # fmt: skip

    def names(self) -> Mapping[str, Any]:
        """What the kernels' modules import, by name."""
        return {
            "gl": self.language(),
            "_copy_in": self.copy_in,
            "fence_async_shared": lambda: None,
            "warpgroup_mma": self.mma,
            "warpgroup_mma_wait": self.mma_wait,
            "mbarrier": SimpleNamespace(
                MBarrierLayout=lambda: None, init=self.init,
                wait=lambda at, phase: self.barrier(at).wait(int(phase)),
                arrive=lambda at: self.barrier(at).add(1, 0),
                expect=lambda at, size: self.barrier(at).add(1, size),
            ),
        }  # fmt: skip


@contextmanager
def on_cpu(*modules: ModuleType) -> Iterator[Chip]:
    """Within it, functions of the modules run as plain Python."""
    chip, patches = Chip(), []
    for module in modules:
        names = {k: v for k, v in chip.names().items() if hasattr(module, k)}
        names |= {k: v.fn for k, v in vars(module).items() if hasattr(v, "arg_names")}
        patches.append(patch.multiple(module, **names))
    for each in patches:
        each.start()
    try:
        yield chip
    finally:
        for each in reversed(patches):
            each.stop()


def run_grid(
    chip: Chip, kernel: Callable[..., None], grid: tuple[int, int, int],
    arguments: Sequence[Any], constants: Mapping[str, int],
) -> None:  # fmt: skip
    """Every program of a launch, one after another; tensors become pointers."""
    given = [Pointer(x) if isinstance(x, torch.Tensor) else x for x in arguments]
    for chip.program in product(*(range(size) for size in grid)):
        chip.barriers.clear()
        kernel(*given, **constants)
