"""Launches as processes of this machine, each in its own session."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from benchx.core.errors import RunFailed
from benchx.core.sources import python_command
from benchx.runner.events import Event, decode
from benchx.runner.executor import Exited
from benchx.runner.spec import LaunchSpec
from benchx.store.faults import storing
from benchx.store.plain import to_line

_POLL_S = 0.05
_REAP_S = 20.0
_TAIL_BYTES, _TAIL_LINES, _TAIL_CHARACTERS = 8192, 3, 300
_VMSTAT = Path("/proc/vmstat")


class LocalExecutor:
    """Starts a Python with this process's own benchx per launch: spec by stdin, events by a pipe.

    The worker's stdin stays open for as long as this process lives: its end tells the worker's
    warden that the parent is gone, even after a kill -9.

    Args:
        module: The worker's module.
    """

    def __init__(self, module: str = "benchx.runner.worker") -> None:
        self._module = module

    def start(self, spec: LaunchSpec, log: Path) -> LocalWorker:
        """See `Executor.start`."""
        read_end, write_end = os.pipe()
        with storing(log, "write"):
            output = log.open("ab")
        with output:
            command = python_command(self._module, str(write_end))
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write_end,),
                    start_new_session=True,
                )
            except OSError as error:
                os.close(read_end)
                raise RunFailed(f"can't start a worker process: {error}") from error
            finally:
                os.close(write_end)
            worker = LocalWorker(process, read_end, log, log_start=output.tell())
        worker.tell(to_line(spec.to_json()) + b"\n")
        return worker


class LocalWorker:
    """A worker process and what it started; see `Worker`."""

    def __init__(
        self, process: subprocess.Popen[bytes], events: int, log: Path, *, log_start: int
    ) -> None:
        self._process, self._events = process, events
        self._log, self._log_start = log, log_start
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._oom_kills = _oom_kills()
        self._killed = False

    @property
    def pid(self) -> int:
        """Process id, which is also that of its group and session."""
        return self._process.pid

    def tell(self, line: bytes) -> None:
        """Hand over the spec; a worker that is gone already shows as `Exited`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def next(self, timeout_s: float) -> Event | Exited | None:
        """See `Worker.next`."""
        deadline = time.monotonic() + timeout_s
        while not self._lines:
            wait_s = deadline - time.monotonic()
            if self._killed or not self._receive(min(_POLL_S, max(wait_s, 0.0))):
                code = self._process.poll()
                if code is not None and (self._killed or not self._receive(0.0)):
                    self.kill()
                    return Exited(code=code, oom_kills=self._new_oom_kills())
            if wait_s <= 0:
                return None
        line = self._lines.popleft()
        try:
            return decode(line)
        except ValueError:
            self.kill()
            return Exited(code=self._process.returncode, garbled=line[:80].decode(errors="replace"))

    def _receive(self, wait_s: float) -> bool:
        """Read what is there; false when nothing came (a child of the worker may hold the pipe)."""
        readable, _, _ = select.select([self._events], [], [], wait_s)
        chunk = os.read(self._events, 65536) if readable else b""
        if readable and not chunk:
            time.sleep(min(wait_s, 0.01))  # the end of the pipe: the process is about to be gone
        *lines, rest = chunk.split(b"\n")
        if lines:  # a record of a million samples comes in a thousand pieces, joined once
            lines[0] = b"".join((*self._partial, lines[0]))
            self._partial.clear()
            self._lines.extend(lines)
        self._partial.append(rest)
        return bool(chunk)

    def kill(self) -> None:
        """See `Worker.kill`."""
        if self._killed:
            return
        self._killed = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(
                f"worker {self.pid} did not die within {_REAP_S:.0f} s of SIGKILL",
                hint="the driver seems to hang; the device may need a reset",
            ) from error
        finally:
            os.close(self._events)
            if self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()

    def log_tail(self) -> str:
        """See `Worker.log_tail`."""
        try:
            with self._log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]

    def _new_oom_kills(self) -> int | None:
        now = _oom_kills()
        return None if now is None or self._oom_kills is None else now - self._oom_kills


def _oom_kills() -> int | None:
    """How many processes the kernel has killed for want of memory since it started."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return None
    counts = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
    return counts[0] if counts else None
