"""Ctrl-C and friends as a flag: nothing is ever cut off in the middle of a write."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from benchx.core.errors import ExitCode, RunFailed


class Interrupted(RunFailed):
    """The run was asked to stop; what was measured until then is kept.

    The exit code is the shell's for the signal: 130 after Ctrl-C, 143 otherwise.
    """

    def __init__(self, message: str, *, by: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.by = by
        self.exit_code = ExitCode.INTERRUPTED if by == "SIGINT" else ExitCode.TERMINATED


class Interrupt:
    """Whether somebody asked the run to stop.

    Attributes:
        by: Name of the signal, or None.
    """

    def __init__(self) -> None:
        self.by: str | None = None

    def request(self, signum: int, frame: FrameType | None = None) -> None:
        """Ask for the stop; a signal handler. The second Ctrl-C acts at once."""
        if self.by is not None:
            raise KeyboardInterrupt
        self.by = signal.Signals(signum).name


@contextmanager
def catching_interrupts() -> Iterator[Interrupt]:
    """Turn SIGINT, SIGTERM and SIGHUP into a flag while the block runs (main thread only).

    A signal that the user chose to ignore (`nohup`) stays ignored.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, interrupt.request)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
