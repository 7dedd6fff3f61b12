"""From what a backend raised to an outcome and one line of reason."""

from __future__ import annotations

import errno
import re
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from benchx.core.device import Device
from benchx.core.errors import BenchxError, UsageError
from benchx.core.outcome import Outcome
from benchx.measure.interleave import EntryFailed
from benchx.measure.timers import TimerUnsupported

_MAX_REASON = 300
_NO_MEMORY = re.compile(
    r"out of memory|can(no|')t allocate memory|unable to allocate|_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
_ASKED = re.compile(r"allocate ([0-9][0-9.]* ?(?:[KMGT]i?B|bytes))", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """Why a point has no figure."""

    outcome: Outcome
    reason: str


class Guard:
    """A block in which foreign code runs; whatever that raises ends here as a `fault`.

    Only this process being asked to stop passes through. The traceback goes to stderr, which is
    the log of the launch.

    Attributes:
        fault: What happened in the block; None when it ended well.
    """

    def __init__(self) -> None:
        self.fault: Fault | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or isinstance(error, KeyboardInterrupt | GeneratorExit):
            return False
        with suppress(OSError, ValueError):  # the backend may have closed stderr
            traceback.print_exception(error, file=sys.stderr)
        self.fault = fault_of(error)
        return True


def fault_of(error: BaseException) -> Fault:
    """Outcome and reason for something that was raised."""
    if isinstance(error, EntryFailed) and error.__cause__ is not None:
        error = error.__cause__
    text = one_line(error)
    if isinstance(error, TimerUnsupported | UsageError):
        return Fault(Outcome.UNSUPPORTED, text)
    if is_out_of_memory(error):
        asked = _ASKED.search(str(error))
        return Fault(Outcome.OOM, f"asked for {asked[1]}: {text}" if asked else text)
    return Fault(Outcome.CRASHED, text)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, as Python, the system, torch's allocators and libraries tell it.

    A library that allocates by itself (cuBLAS, cuDNN) speaks of its status in a RuntimeError.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error)))


def one_line(error: BaseException) -> str:
    """`TypeName: first line of the message`, shortened; a benchx error speaks for itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = lines[0] if lines else ""
    if isinstance(error, BenchxError):
        return str(error)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 3] + "..."


def poison_of(device: Device) -> str | None:
    """Why this process can't use the device any more, or None.

    After an illegal access every call of the context fails; only a new process repairs it.
    """
    if not device.is_gpu:
        return None
    import torch

    try:
        torch.cuda.synchronize(device.index)
    except RuntimeError as error:
        return one_line(error)
    return None
