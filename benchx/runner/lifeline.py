"""No worker outlives its run: a warden ends the whole process group when the parent is gone.

PR_SET_PDEATHSIG would end the worker but leave what a backend has started, and a watching thread
stands still while a backend holds the interpreter lock; a process of its own has neither fault.
"""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress
from pathlib import Path


def take_stdin() -> int:
    """Move stdin to a descriptor of our own, so that a backend that reads it finds it empty."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return lifeline


def read_line(descriptor: int) -> bytes:
    """The bytes up to the first newline; raises EOFError when there is none."""
    chunks = [b""]
    while not chunks[-1].endswith(b"\n"):
        chunks.append(os.read(descriptor, 1 << 20))
        if not chunks[-1]:
            raise EOFError("the parent went away before it said what to do")
    return b"".join(chunks)


def post_warden(lifeline: int, *, close: int) -> None:
    """Fork a process that kills this process group once the other end of `lifeline` closes.

    Forked twice, so that it is no child of the worker, whose backends may wait for theirs. Call
    it before any thread is started.

    Args:
        lifeline: Reading end of a pipe whose writing end only the parent holds.
        close: Descriptor that the warden must not keep open (the pipe of events).
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(lifeline)
        return
    if os.fork():
        os._exit(0)
    os.close(close)
    for interrupt in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(interrupt, signal.SIG_IGN)
    with suppress(OSError):
        while os.read(lifeline, 1):
            pass
    os.killpg(0, signal.SIGKILL)


def offer_to_oom_killer() -> None:
    """If memory runs out, the kernel shall take this process and not the user's others."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit_memory(limit_bytes: int) -> None:
    """Let allocations beyond the machine's memory fail instead of thrashing (CPU only).

    A GPU driver reserves address space far beyond what it uses, so there the kernel decides.
    """
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
