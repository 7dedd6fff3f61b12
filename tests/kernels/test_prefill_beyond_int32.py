"""Offsets beyond 2^31 elements, without the memory of a GPU: only the programs behind them run.

Memory that nobody touches is only an address range, so tensors of 4 GiB and more cost what their
last sequence needs. The interpreter computes addresses as a device does: 32-bit ones would wrap,
and the process would end there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchx.core.device import Device
from benchx.runner.faults import is_out_of_memory
from benchx_kernels._configs import scan_cut
from benchx_kernels.batch import Batch
from benchx_kernels.chunk_prefill import States, chunk_prefill
from benchx_kernels.gate import Gate

# numpy reports the overflows above the diagonal, which are masked.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

HEADS, WIDTH, LAST = 4, 64, 65
CUT = scan_cut(WIDTH, WIDTH, amd=False)
CHUNK = CUT.chunk
FRONT = 2**31 // (HEADS * WIDTH) + CHUNK

Wanted = Callable[[int, int, int], bool]


class Chosen:
    """A kernel's function that does nothing for the programs that are not wanted."""

    def __init__(self, function: Any, wanted: Wanted, builder: Any) -> None:  # noqa: ANN401
        self._function, self._wanted, self._builder = function, wanted, builder
        functools.update_wrapper(self, function)
        self.__signature__ = inspect.signature(function)
        self.__globals__ = function.__globals__  # where the interpreter looks for its language

    def __call__(self, **arguments: Any) -> None:  # noqa: ANN401 - a kernel's
        if self._wanted(*self._builder.grid_idx):
            self._function(**arguments)


@contextmanager
def only(wanted: dict[str, Wanted], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels run the programs that are wanted, on tensors that are not copied."""
    from triton.runtime import interpreter

    begin = interpreter.GridExecutor.__init__

    def choose(self: Any, fn: Any, *rest: Any, **more: Any) -> None:  # noqa: ANN401
        begin(self, fn, *rest, **more)
        self.fn = Chosen(fn, wanted[fn.__name__], interpreter.interpreter_builder)

    with monkeypatch.context() as patch:
        patch.setattr(interpreter.GridExecutor, "__init__", choose)
        # It would copy each tensor onto itself, which touches all of its memory.
        patch.setattr(interpreter.GridExecutor, "_restore_args_dev", lambda *_: None)
        yield


def reserved(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Addresses without memory behind them.

    Skips where the system was told to hand out no more of them than it has memory: nothing can be
    said of offsets there. Any other failure is one.
    """
    try:
        return torch.empty(shape, dtype=dtype)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        pytest.skip(f"this machine reserves no more memory than it has: {error}")


@pytest.mark.parametrize("segments", [1, 2])
def test_the_sequence_behind_2_to_the_31_elements_is_as_if_alone(
    interpreter: Device, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    config = replace(CUT, segment_chunks=-(-(FRONT // CHUNK) // segments))
    generator = torch.Generator().manual_seed(0)
    lengths = (FRONT, LAST)
    wide = [reserved(sum(lengths), HEADS, WIDTH) for _ in range(4)]
    beta = reserved(sum(lengths), HEADS)
    for x in (*wide, beta):
        x[FRONT:] = torch.randn(x[FRONT:].shape, generator=generator).to(x.dtype)
    assert wide[0].numel() > 2**31
    a_log = torch.rand(HEADS, generator=generator)
    gates = {"kind": "bounded", "a_log": a_log, "dt_bias": torch.full((HEADS, WIDTH), -2.0)}

    def prefill(first: int, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v, g = (x[first:] for x in wide)
        final = torch.empty(len(batch.lengths), HEADS, WIDTH, WIDTH)
        o = chunk_prefill(
            q, k, v, beta[first:], gate=Gate(g=g, **gates), batch=batch, scale=0.1, config=config,
            states=States(final=final),
        )  # fmt: skip
        return o[-LAST:], final[-1]

    alone = prefill(FRONT, Batch.from_lengths([LAST], "cpu"))
    behind = FRONT // CHUNK + 1  # slots of the sequence in front
    wanted: dict[str, Wanted] = {
        "chunk_intra": lambda program, _y, _z: program // HEADS >= behind,
        "state_scan": lambda _x, _y, program: program // segments == 1,
        "segment_scan": lambda _x, _y, program: program // (segments - 1) == 1,
        "segment_prefix": lambda _x, _y, sequence: sequence == 1,
    }
    with only(wanted, monkeypatch):
        found = prefill(0, Batch.from_lengths(lengths, "cpu"))
    assert alone[0].abs().sum() > 0
    assert torch.equal(found[0], alone[0])
    assert torch.equal(found[1], alone[1])
