"""Runs one engine and answers for everything that it starts; run as a file, imports none of ours.

It sits between benchx and the engine. It ends the engine's whole tree when benchx asks (a line on
stdin), when benchx is gone (end of stdin, or another parent: a forked child may still hold the
pipe), and when the engine ends by itself but leaves children. As a subreaper it keeps track of
children that moved to a session of their own. When the warden itself is killed, the engine gets
SIGKILL from the kernel, and benchx ends the process group that both are in.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

NOT_STARTED = 127
"""Exit code when there is no such command, as shells have it."""

ORPHAN_GRACE_S = 1.0
"""What an engine gets to leave in order once nobody waits for it."""

_POLL_S = 0.2
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def main(arguments: list[str]) -> int:
    """Run `GRACE_S COMMAND...`; returns the engine's exit code (128 + signal when killed)."""
    grace_s, command = float(arguments[0]), arguments[1:]
    parent, asked = os.getppid(), _asked_to_stop()
    prctl = _prctl()
    prctl(_SET_CHILD_SUBREAPER, 1)
    try:
        engine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            # Safe here: this process has one thread.
            preexec_fn=lambda: prctl(_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
        )
    except OSError as error:
        print(f"can't start {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return NOT_STARTED
    grace_s = _watch(engine, parent, asked, grace_s)
    _end(engine, grace_s)
    code = engine.returncode
    return 128 - code if code < 0 else code


def _prctl() -> Callable[[int, int], None]:
    """`prctl` where there is one (Linux); elsewhere nothing happens."""
    call = getattr(ctypes.CDLL(None), "prctl", None)
    return lambda option, value: call(option, int(value), 0, 0, 0) if call else None


def _asked_to_stop() -> Callable[[], bool]:
    """Whether a signal asked for the end. Ctrl-C is for benchx, which then tells us."""
    asked: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signum, _frame: asked.append(signum))
    return lambda: bool(asked)


def _watch(
    engine: subprocess.Popen[bytes], parent: int, asked: Callable[[], bool], grace_s: float
) -> float:
    """Wait until it is over; returns the seconds that the engine gets to leave."""
    while engine.poll() is None and not asked():
        if os.getppid() != parent:
            return ORPHAN_GRACE_S
        readable, _, _ = select.select([0], [], [], _POLL_S)
        if readable:
            return grace_s if os.read(0, 64) else ORPHAN_GRACE_S
    return grace_s


def _end(engine: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM to the engine, which tells its children; after the grace SIGKILL to all of them."""
    deadline = time.monotonic() + grace_s
    if engine.poll() is None:
        engine.terminate()
    while engine.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    while left := _tree():
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        engine.poll()
        time.sleep(0.02)
    engine.wait()


def _tree() -> list[psutil.Process]:
    """All living descendants, those that were adopted from dead parents included."""
    living = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
