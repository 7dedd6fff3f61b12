"""Run a command and write what its whole process tree cost: `tree_cost.py OUT.json COMMAND...`.

As a subreaper it inherits every process that the command leaves behind, waits for it and so knows
its processor time too; what is still there ten seconds after the command's end is killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_PATIENCE_S = 10.0


def _reap(until_s: float) -> None:
    """Wait for every descendant; raises ChildProcessError when there is none any more."""
    while time.monotonic() < until_s:
        found, _ = os.waitpid(-1, os.WNOHANG)
        if not found:
            time.sleep(0.02)


def main() -> int:
    """Run it; returns the exit code of the command."""
    out, command = Path(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    began_s = time.monotonic()
    code = subprocess.Popen(command, stdin=subprocess.DEVNULL).wait()
    wall_s = time.monotonic() - began_s
    with suppress(ChildProcessError):
        _reap(time.monotonic() + _PATIENCE_S)
        for left in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                left.kill()
        _reap(time.monotonic() + _PATIENCE_S)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": wall_s,
        "largest_process_rss_mb": used.ru_maxrss / 1e3,
    }
    out.write_text(json.dumps(found))
    return code


if __name__ == "__main__":
    sys.exit(main())
