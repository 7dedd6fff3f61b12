"""An operator that doubles a vector, one backend that can, and many that can't."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchx.core.axes import AxisSpec, Params
from benchx.core.call import OutputSpec, PreparedCall, Reference
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.core.record import Work
from benchx.ops.base import Unavailable, register

JUDGED_TWICE = 96
"""Size of the vectors whose second inputs have no positive element."""

Tensors = Mapping[str, torch.Tensor]
Run = Callable[[], Tensors]


@dataclass(frozen=True)
class Vector:
    x: torch.Tensor  # [size] fp32

    @property
    def device(self) -> torch.device:
        return self.x.device

    def clone(self) -> Vector:
        return replace(self, x=self.x.clone())

    def nbytes(self) -> int:
        return self.x.nbytes


class Doubling:
    name = "doubling"
    title = "two times a vector"
    axes: Mapping[str, AxisSpec] = {
        "size": AxisSpec(type="int", doc="elements", default=64, minimum=1),
        "reference_ok": AxisSpec(type="bool", doc="whether the reference works", default=True),
    }
    max_rms_ratio = 1e-6

    def problem(self, params: Params) -> str | None:
        return None

    def make_inputs(self, params: Params, *, seed: int, device: torch.device) -> Vector:
        generator = torch.Generator().manual_seed(seed)
        vector = Vector(torch.randn(int(params["size"]), generator=generator).to(device))
        return vector if params["reference_ok"] else replace(vector, x=vector.x * torch.nan)

    def second_inputs(self, inputs: Vector) -> Vector | None:
        hides = inputs.x.numel() == JUDGED_TWICE
        return replace(inputs, x=-inputs.x.abs()) if hides else None

    def output_specs(self, inputs: Vector) -> Mapping[str, OutputSpec]:
        return {"o": OutputSpec(tuple(inputs.x.shape), torch.float32)}

    def reference(self, inputs: Vector) -> Reference:
        return Reference(outputs={"o": inputs.x.double() * 2}, method="fp64 doubling")

    def work(self, params: Params) -> Work:
        size = int(params["size"])
        return Work(
            flops=float(size),
            min_bytes=8 * size,
            tokens=size,
            kv_cache_bytes=4 * size,
            kv_state_bytes=0,
            leaves_kv=True,
        )


@dataclass(frozen=True)
class Fake:
    """A backend made of one function from inputs to `run`."""

    name: str
    make: Callable[[Vector], Run]
    reset: Callable[[Vector], Callable[[], None]] | None = None
    operator: str = "doubling"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        if self.name == "absent":
            return Unavailable(
                outcome=Outcome.SKIPPED, reason="not installed", install="pip install absent"
            )
        if self.name == "incapable":
            return Unavailable(outcome=Outcome.UNSUPPORTED, reason="can't double this")
        if self.name == "confused":
            raise RuntimeError("asked too much")
        return None

    def prepare(self, inputs: Vector) -> PreparedCall:
        reset = self.reset(inputs) if self.reset else None
        return PreparedCall(run=self.make(inputs), reset=reset)

    def provenance(self) -> Mapping[str, Any]:
        return {"package": "fake", "version": "1.2"}


def _returns(change: Callable[[torch.Tensor], object]) -> Callable[[Vector], Run]:
    return lambda inputs: lambda: {"o": change(inputs.x * 2)}  # type: ignore[dict-item]


def _raises(error: BaseException) -> Callable[[Vector], Run]:
    def make(inputs: Vector) -> Run:
        def run() -> Tensors:
            raise error

        return run

    return make


def _off_below_zero(factor: float) -> Callable[[Vector], Run]:
    """Right wherever an element is positive."""
    return lambda inputs: lambda: {"o": inputs.x * (2 if (inputs.x > 0).any() else 2 * factor)}


def _refuses(inputs: Vector) -> Run:
    raise ValueError("can't prepare this")


def _in_place(inputs: Vector) -> Run:
    return lambda: {"o": inputs.x.mul_(2)}


def _restore(inputs: Vector) -> Callable[[], None]:
    pristine = inputs.x.clone()

    def restore() -> None:
        inputs.x.copy_(pristine)

    return restore


def _fails_when(number: int, error: BaseException) -> Callable[[Vector], Run]:
    """Raises at the n-th call, that is, while it is timed."""

    def make(inputs: Vector) -> Run:
        calls = 0

        def run() -> Tensors:
            nonlocal calls
            calls += 1
            if calls >= number:
                raise error
            return {"o": inputs.x * 2}

        return run

    return make


def _allocates(inputs: Vector) -> Run:
    return lambda: {"o": torch.empty(2**46, dtype=torch.float32, device=inputs.x.device)}


def _out_of_bounds(inputs: Vector) -> Run:
    """On a GPU, a device-side assertion: every later call of the process fails too."""
    return lambda: {"o": inputs.x[torch.full((64,), 10**6, device=inputs.x.device)] * 2}


def _segfaults(inputs: Vector) -> Run:
    return lambda: os.kill(os.getpid(), signal.SIGSEGV) or {}


GOOD = Fake("good", _returns(lambda o: o))
BACKENDS = (
    GOOD,
    Fake("other", _returns(lambda o: o)),
    Fake("wrong", _returns(lambda o: o * 1.5)),
    Fake("blind", _off_below_zero(0.0)),
    Fake("rough", _off_below_zero(1 + 5e-6)),
    Fake("coarse", _off_below_zero(1 + 2e-5)),
    Fake("nan", _returns(lambda o: o.index_fill(0, torch.tensor([0], device=o.device), torch.nan))),
    Fake("shape", _returns(lambda o: o[:-1])),
    Fake("dtype", _returns(lambda o: o.double())),
    Fake("nothing", _returns(lambda o: None)),
    Fake("nameless", lambda inputs: lambda: {}),
    Fake("raises", _raises(RuntimeError("kernel launch failed\nmore"))),
    Fake("refuses", _refuses),
    Fake("quits", _raises(SystemExit(3))),
    Fake("memory", _raises(MemoryError("Unable to allocate 7.00 GiB"))),
    Fake("allocates", _allocates),
    Fake("out_of_bounds", _out_of_bounds),
    Fake("late", _fails_when(60, RuntimeError("the 60th call failed"))),
    Fake("in_place", _in_place, reset=_restore),
    Fake("spoils", _in_place),
    Fake("absent", _returns(lambda o: o)),
    Fake("incapable", _returns(lambda o: o)),
    Fake("confused", _returns(lambda o: o)),
    Fake("segfaults", _segfaults),
    Fake("prints", lambda inputs: lambda: (sys.stdout.write("x" * 99), {"o": inputs.x * 2})[1]),
)
register(Doubling(), *BACKENDS)
